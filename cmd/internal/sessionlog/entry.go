package sessionlog

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/proc"
)

// Entry is one thing that was logged of a session.
type Entry struct {
	ID      int64  `json:"id"`      // rises from each entry to the next
	Session int64  `json:"session"` // the number of its session
	At      string `json:"at"`      // RFC 3339, UTC; of an event, when it was read; of what has no time in the session, when that was written last
	// Kind is user, system, assistant, thinking, tool_call, tool_result, tool_error, partial (of an answer
	// that was never whole), turn_end, compaction, undo, new_session, state, permission_request,
	// permission_end, error, retry, fallback or gap (what is not kept any more).
	Kind   string `json:"kind"`
	TurnID string `json:"turn_id,omitzero"`
	Name   string `json:"name,omitzero"` // of a tool, or of the agent that sent a message
	Text   string `json:"text"`
}

// timeOf is a time as it is logged. All have the same length, so that they sort as text.
func timeOf(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// clean is text without what looks like a key.
func clean(text string) string { return proc.Redact(redact.Keys(text)) }

// entriesOf are what a record of a session says.
func entriesOf(r transcript.Record) []Entry {
	switch r := r.(type) {
	case transcript.Message:
		return ofMessage(r.Message)
	case transcript.TurnEnd:
		text := string(r.Outcome)
		if r.Error != "" {
			text += ": " + r.Error
		}
		return []Entry{{At: timeOf(r.At), Kind: "turn_end", TurnID: r.TurnID, Text: text}}
	case transcript.Compaction:
		text := fmt.Sprintf("%d messages gave way to a summary (about %d tokens, %d before):\n%s", r.Dropped, r.TokensAfter, r.TokensBefore, r.Summary.Content)
		return []Entry{{At: timeOf(r.At), Kind: "compaction", Text: text}}
	case transcript.Undo:
		return []Entry{{At: timeOf(r.At), Kind: "undo", Text: fmt.Sprintf("only the first %d messages are left", r.Kept)}}
	case transcript.Reset:
		return []Entry{{At: timeOf(r.At), Kind: "new_session", Text: r.SessionID}}
	default: // settings and the like are no part of what was said
		return nil
	}
}

// ofMessage are the entries of one message: an assistant's reasoning and calls are their own.
func ofMessage(m protocol.Message) (all []Entry) {
	e := Entry{At: timeOf(m.At), Kind: string(m.Role), TurnID: m.TurnID, Name: m.SourceAgentID, Text: m.Content}
	switch m.Role {
	case protocol.RoleAssistant:
		if m.Thinking != "" {
			all = append(all, Entry{At: e.At, Kind: "thinking", TurnID: m.TurnID, Text: m.Thinking})
		}
		if m.Interrupted {
			e.Text += "\n[interrupted]"
		}
		if e.Text != "" {
			all = append(all, e)
		}
		for _, call := range m.ToolCalls {
			all = append(all, Entry{At: e.At, Kind: "tool_call", TurnID: m.TurnID, Name: call.Name, Text: string(call.Input)})
		}
		return all
	case protocol.RoleTool:
		e.Kind, e.Name = "tool_result", m.ToolName
		if m.IsError {
			e.Kind = "tool_error"
		}
	case protocol.RoleUser:
		for _, file := range m.Attachments {
			e.Text += "\n[file " + cmp.Or(file.Path, protocol.Value(file.Name)) + "]"
		}
		for _, image := range m.Images {
			e.Text += "\n[image " + cmp.Or(image.Name, image.SHA256) + "]"
		}
	case protocol.RoleSystem:
	}
	return []Entry{e}
}

// ofEvent is what an event says that the session does not; ok is false for all others.
func ofEvent(e supervisor.Event, at string) (_ Entry, ok bool) {
	said := func(path string) string { return gjson.GetBytes(e.Data, path).String() }
	entry := Entry{At: at, Kind: e.Type, TurnID: said("turn_id")}
	switch e.Type {
	case "agent_state":
		entry.Kind, entry.Text = "state", said("state")
		reason := said("reason")
		if reason == "" && entry.Text != "failed" && entry.Text != "backoff" {
			return Entry{}, false
		}
		if reason != "" {
			entry.Text += ": " + reason
		}
	case "turn_end": // what its process did not live to say
		entry.Text = said("outcome")
		if entry.Text != "crashed" && entry.Text != "timed_out" {
			return Entry{}, false
		}
		if reason := said("error"); reason != "" {
			entry.Text += ": " + reason
		}
	case "permission_request":
		entry.Name, entry.Text = said("tool_name"), strings.TrimSpace(said("request_id")+" "+said("summary"))
	case "permission_end":
		entry.Text = said("request_id") + " " + said("outcome")
	case "error":
		entry.TurnID, entry.Text = said("id"), said("message")
	case "gap":
		entry.Text = fmt.Sprintf("events %s to %s are not kept any more, or a kill of the server left out their numbers", said("from"), said("to"))
	case "message_update":
		switch kind := said("event.type"); kind {
		case "retry":
			entry.Kind, entry.Text = kind, fmt.Sprintf("attempt %s of %s: %s", said("event.attempt"), said("event.max_attempts"), said("event.reason"))
		case "fallback":
			entry.Kind, entry.Name, entry.Text = kind, said("event.model"), said("event.reason")
		default:
			return Entry{}, false
		}
	default:
		return Entry{}, false
	}
	return entry, true
}

// tellsOfMore reports whether a session may have more records once an event has come.
func tellsOfMore(e supervisor.Event) bool {
	switch e.Type {
	case "agent_state", "session_update", "turn_end":
		return true
	case "message_update":
		return gjson.GetBytes(e.Data, "event.type").Str == "toolcall_result"
	}
	return false
}
