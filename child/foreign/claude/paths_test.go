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
		{"Read", `{"file_path":"/w/a","source":"/etc/shadow"}`, protocol.ActionRead, []string{"/w/a", "/etc/shadow"}},
		{"Edit", `{"file_path":"/w/a","old_string":"/a","new_string":"/b"}`, protocol.ActionWrite, []string{"/w/a"}},
		{"Edit", `{"file_path":"/w/a","old_string":"/a","new_string":"/b","destination":"/etc/shadow"}`, protocol.ActionWrite, []string{"/w/a", "/etc/shadow"}},
		{"Read", `{"file_path":"/w/a","command":"cat /etc/shadow"}`, protocol.ActionExternal, nil},
		{"WebFetch", `{"url":"https://a.example/","prompt":"/x"}`, protocol.ActionFetch, nil},
	} {
		q := question("1", gjson.Parse(`{"tool_use_id":"1","tool_name":"`+tt.tool+`","input":`+tt.input+`}`))
		if q.Action != tt.action || !cmp.Equal(q.Paths, tt.paths) {
			t.Errorf("%s %s: got %s of %q, want %s of %q", tt.tool, tt.input, q.Action, q.Paths, tt.action, tt.paths)
		}
	}
}

// A change of a file that is not named is allowed once alone, whatever rules the program suggests.
func TestOptionsOfAChange(t *testing.T) {
	for input, want := range map[string]int{`{"file_path":"/w/a"}`: 3, `{}`: 2} {
		q := question("1", gjson.Parse(`{"tool_name":"Edit","input":`+input+`,"permission_suggestions":[{"type":"addRules"}]}`))
		if len(q.Options) != want || (q.Options[1].ID == optionSession) != (want == 3) {
			t.Errorf("%s: %+v", input, q.Options)
		}
	}
}

// A call in which a command may stand is shown whole, whatever the tool.
func TestWhatRunsOfAQuestion(t *testing.T) {
	for input, want := range map[string]bool{`{"x":[{"cmd":"sh"}]}`: true, `{"script":"sh"}`: true, `{"x":"sh"}`: false} {
		if q := question("1", gjson.Parse(`{"tool_name":"mcp__x__y","input":`+input+`}`)); q.Runs != want || q.Action != protocol.ActionExternal {
			t.Errorf("%s: got %v, %s", input, q.Runs, q.Action)
		}
	}
}
