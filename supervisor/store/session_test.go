package store_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
)

func said(role protocol.Role, turn, text string) transcript.Record {
	return transcript.Message{Message: protocol.Message{Role: role, TurnID: turn, Content: text, At: time.Unix(1, 0).UTC()}}
}

func ending(turn, outcome, message string) transcript.Record {
	return transcript.TurnEnd{TurnID: turn, Outcome: transcript.Outcome(outcome), Error: message, Usage: protocol.TurnUsage{OutputTokens: 5}, At: time.Unix(2, 0).UTC()}
}

func lines(t *testing.T, records ...transcript.Record) string {
	var data []byte
	for _, r := range records {
		line, err := transcript.Append(data, r)
		must(t, err)
		data = append(line, '\n')
	}
	return string(data)
}

// What the agent saved of a turn is how it ended, whoever saw it.
func TestFind(t *testing.T) {
	user, assistant, tool := protocol.RoleUser, protocol.RoleAssistant, protocol.RoleTool
	begin := lines(t, transcript.Header{Version: 1, SessionID: "x", CreatedAt: time.Unix(0, 0).UTC()},
		said(user, "0", "hi"), said(assistant, "0", "hello"), ending("0", "completed", ""))
	tests := []struct {
		name    string
		session string
		want    supervisor.Outcome // "" for none
		text    string
	}{
		{"no session", "", "", ""},
		{"not begun", begin, "", ""},
		{"begun", begin + lines(t, said(user, "1", "go"), said(assistant, "1", "well")), "", ""},
		{"cut off", begin + lines(t, said(user, "1", "go"), said(assistant, "1", "well"), ending("1", "interrupted", "")), "", ""},
		{"completed", begin + lines(t, said(user, "1", "go"), said(assistant, "1", "one"), said(tool, "1", "result"), said(assistant, "1", ""), said(assistant, "1", "two"), ending("1", "completed", "")), supervisor.Completed, "one\n\ntwo"},
		{"too many calls", begin + lines(t, said(user, "1", "go"), ending("1", "max_iterations", "")), supervisor.Completed, ""},
		{"cut off by the service", begin + lines(t, said(user, "1", "go"), said(assistant, "1", "so f"), ending("1", "max_tokens", "")), supervisor.Completed, "so f"},
		{"filtered", begin + lines(t, said(user, "1", "go"), said(assistant, "1", "so f"), ending("1", "content_filter", "")), supervisor.Completed, "so f"},
		{"aborted", begin + lines(t, said(user, "1", "go"), ending("1", "aborted", "")), "", ""},
		{"failed", begin + lines(t, said(user, "1", "go"), ending("1", "error", "no key")), supervisor.Erred, ""},
		{"a torn end", begin + lines(t, said(user, "1", "go")) + `{"type":"turn_end","turn_id":"1","outcome":"comp`, "", ""},
		{"the second time", begin + lines(t, said(user, "1", "go"), said(assistant, "1", "we"), ending("1", "interrupted", ""), said(user, "1", "go"), said(assistant, "1", "well"), ending("1", "completed", "")), supervisor.Completed, "well"},
		{"cut off the second time", begin + lines(t, said(user, "1", "go"), ending("1", "completed", ""), said(user, "1", "go")), "", ""},
		{"an id within a text", begin + lines(t, said(user, "2", `say "1"`), said(assistant, "2", `"1"`), ending("2", "completed", "")), "", ""},
		{"damage before it", begin + "{]\n" + lines(t, said(user, "1", "go"), said(assistant, "1", "well"), ending("1", "completed", "")), supervisor.Completed, "well"},
		{"much text", begin + lines(t, said(user, "1", "go"), said(assistant, "1", strings.Repeat("€", supervisor.MaxText/3+1)), ending("1", "completed", "")), supervisor.Completed, strings.Repeat("€", supervisor.MaxText/3)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			session := filepath.Join(dir, "a.jsonl")
			if tt.session != "" {
				must(t, os.WriteFile(session, []byte(tt.session), 0o600))
			}
			l := records(t, dir)
			found, err := l.Find("1", "unheard \xff")
			must(t, err)
			r, ok := found["1"]
			if ok != (tt.want != "") || r.Outcome != tt.want || r.Text != tt.text {
				t.Fatalf("found %v: %q, %d bytes of text", ok, r.Outcome, len(r.Text))
			}
			if ok && (r.TurnID != "1" || r.Usage.OutputTokens != 5 || (r.Err == nil) != (tt.want == supervisor.Completed)) {
				t.Errorf("found %+v", r)
			}
			if r.Truncated != (tt.name == "much text") {
				t.Errorf("truncated: %v", r.Truncated)
			}
			must(t, l.Accept("1", [32]byte{}))
			must(t, l.Close())
			looked, err := open(dir).Outcome("a", "1")
			if want := cmp.Or(tt.want, supervisor.Crashed); looked != want || err != nil {
				t.Errorf("looked up: %q, %v, want %q", looked, err, want)
			}
		})
	}
}
