package claude

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
)

// All paths of a question count, whatever the tool, and a pattern that leads elsewhere makes a tool of somebody else's of it.
func TestPathsOfAQuestion(t *testing.T) {
	for _, tt := range []struct {
		tool, input string
		action      protocol.Action
		paths       []string
	}{
		{"NotebookEdit", `{"file_path":"/w/a","notebook_path":"/etc/passwd"}`, protocol.ActionWrite, []string{"/w/a", "/etc/passwd"}},
		{"Grep", `{"file_path":"/w/a","path":"/etc","pattern":"/x"}`, protocol.ActionRead, []string{"/w/a", "/etc"}},
		{"Glob", `{"path":"/w","pattern":"*.go"}`, protocol.ActionRead, []string{"/w"}},
		{"Glob", `{"path":"/w","pattern":"/etc/*"}`, protocol.ActionExternal, nil},
		{"Glob", `{"path":"/w","pattern":"../*"}`, protocol.ActionExternal, nil},
		{"Glob", `{"path":"/w","pattern":"{x,/etc/*}"}`, protocol.ActionExternal, nil},
		{"Glob", `{"path":"/w","pattern":"@(/etc)/*"}`, protocol.ActionExternal, nil},
		{"Glob", `{"path":"/w","pattern":"src/{a,b}/*.{ts,go}"}`, protocol.ActionRead, []string{"/w"}},
		{"Read", `{}`, protocol.ActionExternal, nil},
	} {
		q := question("1", gjson.Parse(`{"tool_use_id":"1","tool_name":"`+tt.tool+`","input":`+tt.input+`}`))
		if q.Action != tt.action || !cmp.Equal(q.Paths, tt.paths) {
			t.Errorf("%s %s: got %s of %q, want %s of %q", tt.tool, tt.input, q.Action, q.Paths, tt.action, tt.paths)
		}
	}
}
