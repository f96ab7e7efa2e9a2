package codex

import (
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign/rpcpeer"
	"nexus.internal/protocol"
)

// A question shows what the program asks for: the change of each file, and the host that a command wants. Files that
// are not named are allowed once alone.
func TestQuestions(t *testing.T) {
	for _, tt := range []struct {
		name, method, item, params, want string
		action                           protocol.Action
		session                          bool
	}{
		{
			"a change", "fileChange", `{"type":"fileChange","changes":[{"path":"/w/a","kind":{"type":"update"},"diff":"-two\n+three"}]}`, "",
			`{"changes":[{"path":"/w/a","kind":"update","diff":"-two\n+three"}]}`, protocol.ActionWrite, true,
		},
		{"a change that was not told of", "fileChange", "", `"reason":"trust me",`, "", protocol.ActionExternal, false},
		{
			"a host", "commandExecution", `{"type":"commandExecution","command":"curl x"}`, `"networkApprovalContext":{"host":"Example.org"},`,
			`{"host":"Example.org","call":{"command":"curl x"}}`, protocol.ActionFetch, true,
		},
	} {
		turn := newTurn(t.Context(), "1", nil)
		if tt.item != "" {
			turn.keep("i", gjson.Parse(tt.item))
		}
		q := turn.question(rpcpeer.Message{Method: "item/" + tt.method + "/requestApproval", Params: gjson.Parse(`{` + tt.params + `"itemId":"i"}`)})
		session := false
		for _, o := range q.Options {
			session = session || o.Kind == protocol.AllowSession
		}
		if string(q.Input) != tt.want || q.Action != tt.action || session != tt.session {
			t.Errorf("%s: got %s of %s, for the session %t", tt.name, q.Action, q.Input, session)
		}
	}
}
