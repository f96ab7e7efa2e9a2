package protocol

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol/strict"
)

// commands and events are the closed sets, by type name: the zero value that a
// frame of that type is decoded into.
var (
	commands = table[Command](
		Prompt{}, FollowUp{}, Compact{}, NewSession{}, GetMessages{}, SetModel{}, GetAvailableModels{},
		Abort{}, GetSessionStats{}, GetState{}, ToolsList{}, Ping{}, Shutdown{},
	)
	events = table[Event](
		Ready{}, SubagentStart{}, SubagentUpdate{}, SubagentDone{}, AgentEnd{}, Error{}, SessionUpdate{},
	)
	assistantEvents = table[AssistantEvent](
		TextDelta{}, ThinkingDelta{}, ToolcallStart{}, ToolcallInputDelta{}, ToolcallInput{}, ToolcallResult{},
	)
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

// NewFrame finds the type of a line. The line must be one JSON object in valid
// UTF-8 with a string member "type"; the error is a *SyntaxError or an
// *UnknownTypeError. The Frame keeps line.
func NewFrame(line []byte) (Frame, error) {
	typ, _, err := open(line)
	if err != nil {
		return Frame{}, err
	}
	return Frame{Type: typ, Raw: line}, nil
}

// Decode gives the frame its Go type. Errors are *SyntaxError and
// *MemberError; a type that is not known is no error but an [UnknownEvent].
func (f Frame) Decode() (Event, error) {
	typ, id, err := open(f.Raw)
	if err != nil {
		return nil, err
	}
	switch typ {
	case "response":
		return decodeResponse(f.Raw)
	case "message_update":
		return decodeMessageUpdate(f.Raw)
	}
	zero, ok := events[typ]
	if !ok {
		return UnknownEvent{Type: typ, Raw: jsontext.Value(f.Raw).Clone()}, nil
	}
	event, err := fill(f.Raw, zero)
	if err != nil {
		return nil, &MemberError{ID: id, Type: typ, Err: err}
	}
	return event, nil
}

// DecodeCommand decodes one line, newline excluded. Errors are *SyntaxError,
// *UnknownTypeError and *MemberError, each with the id of the line where one
// could be read. Every error leaves the stream usable.
func DecodeCommand(line []byte) (Command, error) {
	typ, id, err := open(line)
	if err != nil {
		return nil, err
	}
	zero, ok := commands[typ]
	if !ok {
		return nil, &UnknownTypeError{ID: id, Type: typ}
	}
	command, err := fill(line, zero)
	if err != nil {
		return nil, &MemberError{ID: id, Type: typ, Err: err}
	}
	return command, nil
}

// AppendCommand appends the frame of c to dst, newline excluded. It fails only
// on strings that are not UTF-8.
func AppendCommand(dst []byte, c Command) ([]byte, error) {
	if p, ok := c.(Prompt); ok && p.Attachments == nil {
		p.Attachments = []Attachment{}
		c = p
	}
	return appendTagged(dst, c.Name(), c)
}

// AppendEvent appends the frame of e to dst, newline excluded. It fails on
// strings that are not UTF-8 and on a Response whose Body is not an object.
func AppendEvent(dst []byte, e Event) ([]byte, error) {
	switch e := e.(type) {
	case MessageUpdate:
		return appendMessageUpdate(dst, e)
	case Response:
		return appendResponse(dst, e)
	case UnknownEvent:
		return append(dst, e.Raw...), nil
	default:
		return appendTagged(dst, e.Name(), e)
	}
}

// NewResponse builds the response to c from a struct or map whose members are
// the response's own. It panics if members cannot be written as JSON: they are
// ours.
func NewResponse(c Command, members any) Response {
	body, err := json.Marshal(members)
	if err != nil {
		panic(fmt.Sprintf("protocol: response to %s: %v", c.Name(), err))
	}
	return Response{ID: c.Ident(), Command: c.Name(), Body: body}
}

// open checks a line as a whole and reads the two members that every frame is
// routed by. The id is "" unless it is a string.
func open(line []byte) (typ, id string, err error) {
	if err := strict.Valid(line); err != nil {
		return "", "", &SyntaxError{ID: soleID(line, err), Err: err}
	}
	object := gjson.ParseBytes(line)
	if !object.IsObject() {
		return "", "", &SyntaxError{Err: errors.New("a frame is a JSON object")}
	}
	if member := object.Get("id"); member.Type == gjson.String {
		id = member.Str
	}
	member := object.Get("type")
	if member.Type != gjson.String || member.Str == "" {
		return "", "", &UnknownTypeError{ID: id}
	}
	return member.Str, id, nil
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
		return nil, &MemberError{Type: "message_update", Err: &strict.Error{
			Path: "event", Problem: `want object with a string member "type"`,
		}}
	}
	zero, ok := assistantEvents[typ.Str]
	if !ok {
		return MessageUpdate{Event: UnknownAssistantEvent{Type: typ.Str, Raw: jsontext.Value(inner.Raw)}}, nil
	}
	event, err := fill([]byte(inner.Raw), zero)
	if err != nil {
		return nil, &MemberError{Type: "message_update", Err: err}
	}
	return MessageUpdate{Event: event}, nil
}

// decodeResponse takes id and command out of the object; what is left is the
// flattened body, in its order.
func decodeResponse(line []byte) (Event, error) {
	var head struct {
		ID      string `json:"id"`
		Command string `json:"command"`
	}
	if err := strict.Fill(line, &head, strict.IgnoreUnknown); err != nil {
		return nil, &MemberError{ID: gjson.GetBytes(line, "id").Str, Type: "response", Err: err}
	}
	body := []byte{'{'}
	gjson.ParseBytes(line).ForEach(func(key, value gjson.Result) bool {
		switch key.String() {
		case "type", "id", "command":
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

func appendResponse(dst []byte, r Response) ([]byte, error) {
	head, err := appendTagged(dst, "response", struct {
		ID      string `json:"id"`
		Command string `json:"command"`
	}{r.ID, r.Command})
	if err != nil || len(r.Body) == 0 {
		return head, err
	}
	if r.Body.Kind() != '{' {
		return nil, fmt.Errorf("response to %s: body is not a JSON object", r.Command)
	}
	return splice(head, r.Body), nil
}

func appendMessageUpdate(dst []byte, m MessageUpdate) ([]byte, error) {
	dst = append(dst, `{"type":"message_update","event":`...)
	if unknown, ok := m.Event.(UnknownAssistantEvent); ok {
		dst = append(dst, unknown.Raw...)
		return append(dst, '}'), nil
	}
	dst, err := appendTagged(dst, m.Event.Name(), m.Event)
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

// appendTagged appends {"type":NAME, …members of value}.
func appendTagged(dst []byte, name string, value any) ([]byte, error) {
	members, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, name...)
	dst = append(dst, `"}`...)
	return splice(dst, members), nil
}

// splice adds the members of the object to the object that ends dst.
func splice(dst []byte, object jsontext.Value) []byte {
	start, end := 0, len(object)
	for object[start] != '{' {
		start++
	}
	for object[end-1] != '}' {
		end--
	}
	inner := object[start+1 : end-1]
	if len(trimSpace(inner)) == 0 {
		return dst
	}
	dst = append(dst[:len(dst)-1], ',')
	dst = append(dst, inner...)
	return append(dst, '}')
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\n' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}
