package protocol_test

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/fixtures"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

func seed(f *testing.F) {
	for _, kind := range []string{"commands", "events", "invalid"} {
		for _, file := range fixtures.Glob(f, "frames/"+kind+"/*.json") {
			f.Add(trimNewline(fixtures.Read(f, file)))
		}
	}
}

// routed is what a second JSON library reads from a line.
type routed struct {
	Type jsontext.Value `json:"type"`
	ID   jsontext.Value `json:"id"`
}

func (r routed) text(raw jsontext.Value) (s string, ok bool) {
	return s, json.Unmarshal(raw, &s) == nil && raw.Kind() == '"'
}

// FuzzDecodeCommand: a line either decodes to a command that comes back
// unchanged through its own frame, or to an error with the line's only string
// id; type and id are those a second reader sees.
func FuzzDecodeCommand(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, line []byte) {
		sameAsCareful(t, line)
		command, err := protocol.DecodeCommand(line)
		var second routed
		readable := json.Unmarshal(line, &second) == nil
		id, _ := second.text(second.ID)
		if err != nil {
			if got := errorID(err); readable && got != id {
				t.Fatalf("error has the id %q, the line %q: %v", got, id, err)
			}
			return
		}
		if typ, _ := second.text(second.Type); !readable || typ != command.Name() || (command.Name() != "shutdown" && id != command.Ident()) {
			t.Fatalf("read as %s %q, by another reader as %s %q", command.Name(), command.Ident(), typ, id)
		}
		again, err := protocol.AppendCommand(nil, command)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(again, "\n\r") {
			t.Fatalf("frame of two lines: %q", again)
		}
		got, err := protocol.DecodeCommand(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if p, ok := command.(protocol.Prompt); ok && p.Attachments == nil {
			p.Attachments = []protocol.Attachment{} // what a frame says in full
			command = p
		}
		if diff := cmp.Diff(command, got); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
	})
}

// FuzzFrameDecode: an event that decodes comes back unchanged through its own
// frame, and every frame that is routed has the type a second reader sees.
func FuzzFrameDecode(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, line []byte) {
		if strict.Valid(line) == nil && protocol.PlainNames(line) {
			if err := protocol.CompareNames(line); err != nil {
				t.Fatalf("the quick look missed: %v", err)
			}
		}
		frame, err := protocol.NewFrame(line)
		event, decodeErr := protocol.Frame{Raw: line}.Decode()
		if err != nil {
			if decodeErr == nil {
				t.Fatalf("decoded to %v what is no frame: %v", event, err)
			}
			return
		}
		var second routed
		if err := json.Unmarshal(line, &second); err != nil {
			t.Fatal(err)
		}
		if typ, ok := second.text(second.Type); !ok || typ != frame.Type {
			t.Fatalf("routed as %q, by another reader as %q", frame.Type, typ)
		}
		if decodeErr != nil {
			return
		}
		if event.Name() != frame.Type {
			t.Fatalf("routed as %q, decoded as %q", frame.Type, event.Name())
		}
		again, err := protocol.AppendEvent(nil, event)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsAny(again, "\n\r") {
			t.Fatalf("frame of two lines: %q", again)
		}
		got, err := protocol.Frame{Raw: again}.Decode()
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if diff := cmp.Diff(compact(event), compact(got)); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
	})
}

// compact takes the space out of raw values: a frame keeps none.
func compact(e protocol.Event) protocol.Event {
	squeeze := func(raw jsontext.Value) jsontext.Value {
		out, err := jsontext.AppendFormat(nil, raw)
		if err != nil {
			panic(err)
		}
		return out
	}
	switch e := e.(type) {
	case protocol.Response:
		e.Body = squeeze(e.Body)
		return e
	case protocol.UnknownEvent:
		e.Raw = squeeze(e.Raw)
		return e
	case protocol.MessageUpdate:
		switch step := e.Event.(type) {
		case protocol.ToolcallInput:
			step.Input = squeeze(step.Input)
			e.Event = step
		case protocol.UnknownAssistantEvent:
			step.Raw = squeeze(step.Raw)
			e.Event = step
		}
		return e
	default:
		return e
	}
}
