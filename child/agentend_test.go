package child_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/child"
)

// eager is a parent that sends its next command when it has read agent_end, and nothing
// after that yet. The child is in the write of that frame until the command was handled.
type eager struct {
	stdin    *io.PipeWriter
	commands []string
	frames   []string // those that matter, as "type id"
}

func (e *eager) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		f := gjson.ParseBytes(line)
		switch kind := f.Get("type").Str; kind {
		case "ready", "message_update":
		case "agent_end":
			e.frames = append(e.frames, kind+" "+f.Get("turn_id").Str)
		default:
			e.frames = append(e.frames, fmt.Sprint(kind, " ", f.Get("id").Str, " ", f.Get("ok").Bool(), f.Get("error").Str, f.Get("message").Str))
			if strings.Contains(f.Get("message").Str, "in flight") {
				e.stdin.Close() // nothing more comes
			}
		}
		if f.Get("type").Str == "agent_end" {
			e.next()
		}
	}
	return len(b), nil
}

// next sends a command, and ends stdin after the last. The child reads what follows a
// command, be it an empty line, once the command is handled.
func (e *eager) next() {
	command, last := e.commands[0], len(e.commands) == 1
	e.commands = e.commands[1:] // before the child reads it: its turn may end at once
	io.WriteString(e.stdin, command+"\n")
	io.WriteString(e.stdin, "\n")
	if last {
		e.stdin.Close()
	}
}

// A child whose agent_end was read is idle: what comes before the response of that turn is
// read is accepted, though others have to wait for the turn, and is carried out after the
// response is written.
func TestCommandsAtAgentEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stdin, parent := io.Pipe()
		e := &eager{stdin: parent, commands: []string{
			`{"type":"prompt","id":"1","message":"say one"}`, `{"type":"prompt","id":"2","message":"fail"}`,
			`{"type":"prompt","id":"3","message":"say three"}`, `{"type":"follow_up","id":"4","message":"say four"}`,
			`{"type":"compact","id":"c"}`,
		}}
		go e.next()
		if err := child.Serve(context.Background(), stdin, e, options()); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"agent_end 1", "response 1 true",
			"error 2 falsethe service is down", "agent_end 2", "response 2 falsethe service is down",
			"agent_end 3", "response 3 true",
			"agent_end 4", "response 4 true",
			"response c true",
		}
		if diff := cmp.Diff(want, e.frames); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
