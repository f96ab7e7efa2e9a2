package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/suggest"
)

// commands and events are the closed sets, by type name: the zero value that a
// frame of that type is decoded into.
var (
	commands        = table(Commands()...)
	events          = table(Events()...)
	assistantEvents = table(AssistantEvents()...)
)

func table[T interface{ Name() string }](zeros ...T) map[string]T {
	byName := make(map[string]T, len(zeros))
	for _, zero := range zeros {
		byName[zero.Name()] = zero
	}
	return byName
}

// Frame is a line as it was written, with its type already found. Whoever acts
// on it decodes it; whoever passes it on sends Raw.
type Frame struct {
	// Type is the value of the "type" member.
	Type string
	// Raw is the JSON object, newline excluded. It must not be changed.
	Raw []byte
}

// NewFrame finds the type of an event's line. The line must be one JSON object in
// valid UTF-8 with a string member "type", as [ValidEvent] wants it; the error is a *SyntaxError or an
// *UnknownTypeError. The Frame keeps line.
func NewFrame(line []byte) (Frame, error) {
	typ, err := open(line)
	if err != nil {
		return Frame{}, err
	}
	if err := distinct(line); err != nil {
		return Frame{}, &SyntaxError{Err: err}
	}
	return Frame{Type: typ, Raw: line}, nil
}

// Decode gives the frame its Go type. A Frame whose Type is empty is checked as
// [NewFrame] does it. Errors are *SyntaxError, *UnknownTypeError (of a frame
// without a type) and *MemberError; a type that is not known is no error but an
// [UnknownEvent].
func (f Frame) Decode() (Event, error) {
	if f.Type == "" {
		var err error
		if f, err = NewFrame(f.Raw); err != nil {
			return nil, err
		}
	}
	event, err := f.decode()
	if err != nil {
		return nil, &MemberError{ID: idOf(f.Raw), Type: f.Type, Err: err}
	}
	return event, nil
}

// Decoded reports whether a parent acts on events of that type, so that it decodes
// them: then it should decode a Frame without its Type, which checks all of it.
func Decoded(typ string) bool {
	switch typ {
	case "ready", "response", "agent_end", "error", "session_update", "host_call", "host_cancel", "permission_request", "permission_end":
		return true
	default:
		return false
	}
}

func (f Frame) decode() (Event, error) {
	switch f.Type {
	case "response":
		return decodeResponse(f.Raw)
	case "message_update":
		return decodeMessageUpdate(f.Raw)
	}
	zero, ok := events[f.Type]
	if !ok {
		return UnknownEvent{Type: f.Type, Raw: jsontext.Value(f.Raw).Clone()}, nil
	}
	return fill(f.Raw, zero)
}

// DecodeCommand decodes one line, newline excluded. Errors are *SyntaxError,
// *UnknownTypeError and *MemberError, each with the id of the line where one
// could be read. Every error leaves the stream usable.
func DecodeCommand(line []byte) (Command, error) {
	if prompt, ok := plainPrompt(line); ok {
		return prompt, nil
	}
	return decodeCommand(line)
}

// decodeCommand is DecodeCommand for lines of every kind.
func decodeCommand(line []byte) (Command, error) {
	typ, err := open(line)
	if err != nil {
		return nil, err
	}
	zero, ok := commands[typ]
	if !ok {
		return nil, &UnknownTypeError{ID: idOf(line), Type: typ, Near: suggest.Nearest(typ, slices.Sorted(maps.Keys(commands)))}
	}
	command, err := fill(line, zero)
	if err != nil {
		return nil, &MemberError{ID: idOf(line), Type: typ, Err: err}
	}
	return command, nil
}

// plainPrompt reads the prompt of a line that has no space between its parts and no member
// but those of a prompt, each once and a string, or [] for the attachments: that is how parents
// write most commands. Of any other line it says nothing.
func plainPrompt(line []byte) (p Prompt, ok bool) {
	const attachments = `"attachments":[]`
	var typ string
	names := [...]string{"type", "id", "message", "source", "source_agent_id", "traceparent"}
	values := [len(names)]*string{&typ, &p.ID, &p.Message, &p.Source, &p.SourceAgentID, &p.Traceparent}
	var seen [len(names)]bool
	var scratch [512]byte
	rest := line
	for before := byte('{'); len(rest) > 1 && rest[0] == before; before = ',' {
		rest = rest[1:]
		if bytes.HasPrefix(rest, []byte(attachments)) && p.Attachments == nil {
			p.Attachments, rest = []Attachment{}, rest[len(attachments):]
			continue
		}
		name, after := quoted(rest)
		if len(name) == 0 || len(after) == 0 || after[0] != ':' {
			return p, false
		}
		i := slices.Index(names[:], string(name[1:len(name)-1]))
		var text []byte
		if text, rest = quoted(after[1:]); len(text) == 0 || i < 0 || seen[i] {
			return p, false
		}
		value, err := jsontext.AppendUnquote(scratch[:0], text)
		if err != nil {
			return p, false
		}
		*values[i], seen[i] = string(value), true
	}
	return p, string(rest) == "}" && typ == p.Name() && seen[1] && seen[2]
}

// quoted is the string that text begins with, in its quotes, and what is after it; nil if it
// begins with none.
func quoted(text []byte) (str, after []byte) {
	if len(text) == 0 || text[0] != '"' {
		return nil, nil
	}
	end := closingQuote(text, 1)
	if end < 0 {
		return nil, nil
	}
	return text[:end+1], text[end+1:]
}

// AppendCommand appends the frame of c to dst, newline excluded. It fails only
// on strings that are not UTF-8.
func AppendCommand(dst []byte, c Command) ([]byte, error) {
	if p, ok := c.(Prompt); ok && len(p.Attachments) == 0 {
		return appendMembers(dst, p.Name(), func(m *Members) { m.prompt(p) })
	}
	return appendTagged(dst, c.Name(), c)
}

// EncodeEvent is the frame of an event of ours, newline excluded. It panics where AppendEvent
// fails.
func EncodeEvent(e Event) []byte {
	data, err := AppendEvent(nil, e)
	if err != nil {
		panic("protocol: " + err.Error())
	}
	return data
}

// AppendEvent appends the frame of e to dst, newline excluded. It fails on
// strings that are not UTF-8, on numbers that JSON cannot write, on raw values
// that are not JSON and on a Response whose Body is not an object or has a
// member of the frame's own. What it returns beside an error is dst.
func AppendEvent(dst []byte, e Event) ([]byte, error) {
	switch e := e.(type) {
	case MessageUpdate:
		return appendMessageUpdate(dst, e)
	case Response:
		return appendResponse(dst, e)
	case UnknownEvent:
		return appendRaw(dst, e.Type, e.Raw)
	case AgentEnd:
		return appendMembers(dst, e.Name(), func(m *Members) { m.agentEnd(e) })
	case SessionUpdate:
		return appendMembers(dst, e.Name(), func(m *Members) { m.sessionUpdate(e) })
	case TurnStart:
		return appendMembers(dst, e.Name(), func(m *Members) { m.turnStart(e) })
	case TurnEnd:
		return appendMembers(dst, e.Name(), func(m *Members) { m.turnEnd(e) })
	default:
		return appendTagged(dst, e.Name(), e)
	}
}

// appendMembers appends {"type":NAME, …what add adds}.
func appendMembers(dst []byte, name string, add func(*Members)) ([]byte, error) {
	m := NewMembers(slices.Grow(dst, 384))
	m.String("type", name)
	add(&m)
	out, err := m.Close()
	if err != nil {
		return dst, fmt.Errorf("encode %s: %w", name, err)
	}
	return out, nil
}

// open checks a line as a whole and reads the member that a frame is routed by.
func open(line []byte) (typ string, err error) {
	if err := strict.Valid(line); err != nil {
		return "", &SyntaxError{ID: soleID(line, err), Err: err}
	}
	if jsontext.Value(line).Kind() != '{' {
		return "", &SyntaxError{Err: errors.New("a frame is a JSON object")}
	}
	member := gjson.GetBytes(line, "type")
	if member.Type != gjson.String || member.Str == "" {
		return "", &UnknownTypeError{ID: idOf(line)}
	}
	return member.Str, nil
}

// idOf reads the id of a valid object; "" if it has none that is a string.
func idOf(object []byte) string {
	if id := gjson.GetBytes(object, "id"); id.Type == gjson.String {
		return id.Str
	}
	return ""
}

// soleID reads the id of an object that has some member twice, as long as the
// id itself stands in it once.
func soleID(line []byte, err error) (id string) {
	if !errors.Is(err, strict.ErrDuplicate) || !jsontext.Value(line).IsValid(jsontext.AllowDuplicateNames(true)) {
		return ""
	}
	count := 0
	gjson.ParseBytes(line).ForEach(func(key, value gjson.Result) bool {
		if key.Str == "id" {
			count++
			if value.Type == gjson.String {
				id = value.Str
			}
		}
		return true
	})
	if count != 1 {
		return ""
	}
	return id
}

// fill decodes an object that is valid as JSON into a new value of zero's type.
func fill[T any](object []byte, zero T) (T, error) {
	value := reflect.New(reflect.TypeOf(zero))
	if err := strict.Fill(object, value.Interface(), strict.IgnoreUnknown); err != nil {
		return zero, err
	}
	return value.Elem().Interface().(T), nil
}

func decodeMessageUpdate(line []byte) (Event, error) {
	inner := gjson.GetBytes(line, "event")
	typ := inner.Get("type")
	if !inner.IsObject() || typ.Type != gjson.String || typ.Str == "" {
		return nil, &strict.Error{Path: "event", Problem: `is no object with a string member "type"`}
	}
	zero, ok := assistantEvents[typ.Str]
	if !ok {
		return MessageUpdate{Event: UnknownAssistantEvent{Type: typ.Str, Raw: jsontext.Value(inner.Raw)}}, nil
	}
	event, err := fill([]byte(inner.Raw), zero)
	if fault, ok := errors.AsType[*strict.Error](err); ok {
		return nil, &strict.Error{Path: "event." + fault.Path, Problem: fault.Problem}
	}
	if err != nil {
		return nil, err
	}
	return MessageUpdate{Event: event}, nil
}

// responseHead is what a response has beside its body.
type responseHead struct {
	ID      string `json:"id"`
	Command string `json:"command"`
}

// decodeResponse takes id and command out of the object; what is left is the
// flattened body, in its order.
func decodeResponse(line []byte) (Event, error) {
	var head responseHead
	if err := strict.Fill(line, &head, strict.IgnoreUnknown); err != nil {
		return nil, err
	}
	body := append(make([]byte, 0, len(line)), '{')
	gjson.ParseBytes(line).ForEach(func(key, value gjson.Result) bool {
		if ofFrame(key.Str) {
			return true
		}
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(body, key.Raw...)
		body = append(body, ':')
		body = append(body, value.Raw...)
		return true
	})
	return Response{ID: head.ID, Command: head.Command, Body: append(body, '}')}, nil
}

func ofFrame(name string) bool { return name == "type" || name == "id" || name == "command" }

func appendResponse(dst []byte, r Response) ([]byte, error) {
	out := append(dst, `{"type":"response","id":`...) // one for each turn: not through reflection
	out, err := jsontext.AppendQuote(out, r.ID)
	if err == nil {
		out, err = jsontext.AppendQuote(append(out, `,"command":`...), r.Command)
	}
	if err != nil {
		return dst, fmt.Errorf("encode response: %w", err)
	}
	if out = append(out, '}'); len(r.Body) == 0 {
		return out, nil
	}
	if string(r.Body) == plainSuccess {
		return splice(out, r.Body), nil
	}
	body, err := jsontext.AppendFormat(nil, r.Body, jsontext.PreserveRawStrings(true))
	if err != nil {
		return dst, fmt.Errorf("encode response to %s: %w", r.Command, err)
	}
	if body[0] != '{' {
		return dst, fmt.Errorf("encode response to %s: body is not a JSON object", r.Command)
	}
	var clash string
	gjson.ParseBytes(body).ForEach(func(key, _ gjson.Result) bool {
		if ofFrame(key.Str) {
			clash = key.Str
		}
		return clash == ""
	})
	if clash != "" {
		return dst, fmt.Errorf("encode response to %s: body has a member %q", r.Command, clash)
	}
	return splice(out, body), nil
}

func appendMessageUpdate(dst []byte, m MessageUpdate) ([]byte, error) {
	out := append(dst, `{"type":"message_update","event":`...)
	var err error
	switch e := m.Event.(type) {
	case UnknownAssistantEvent:
		out, err = appendRaw(out, e.Type, e.Raw)
	case TextDelta: // one for each word of a model: not through reflection
		out = append(out, `{"type":"text_delta","delta":`...)
		out, err = jsontext.AppendQuote(out, e.Delta)
		out = append(out, '}')
	default:
		out, err = appendTagged(out, e.Name(), e)
	}
	if err != nil {
		return dst, fmt.Errorf("encode message_update: %w", err)
	}
	return append(out, '}'), nil
}

// appendTagged appends {"type":NAME, …members of value}.
func appendTagged(dst []byte, name string, value any) ([]byte, error) {
	members, err := json.Marshal(value)
	if err != nil {
		return dst, fmt.Errorf("encode %s: %w", name, err)
	}
	out := slices.Grow(dst, len(`{"type":"","}`)+len(name)+len(members))
	out = append(out, `{"type":"`...)
	out = append(out, name...)
	out = append(out, `"}`...)
	return splice(out, members), nil
}

// appendRaw appends a value of somebody else's on one line.
func appendRaw(dst []byte, name string, raw jsontext.Value) ([]byte, error) {
	out, err := jsontext.AppendFormat(dst, raw, jsontext.PreserveRawStrings(true))
	if err != nil {
		return dst, fmt.Errorf("encode %s: %w", name, err)
	}
	return out, nil
}

// splice adds the members of an object, which has no space around its braces,
// to the object that ends dst.
func splice(dst []byte, object []byte) []byte {
	inner := object[1 : len(object)-1]
	if len(inner) == 0 {
		return dst
	}
	dst = append(dst[:len(dst)-1], ',')
	dst = append(dst, inner...)
	return append(dst, '}')
}
