package terminal

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
)

// What was said before shows what failed or was refused, and where an answer was cut off: a refused call
// looked as if it had run, and a cut answer as if it were whole.
func TestPast(t *testing.T) {
	message := func(m protocol.Message) api.Message { return api.Message{Message: m} }
	reads := func(id, path string) protocol.ToolCall {
		return protocol.ToolCall{ID: id, Name: "read_file", Input: []byte(`{"path":"` + path + `"}`)}
	}
	result := func(id string, failed bool) api.Message {
		return message(protocol.Message{Role: protocol.RoleTool, ToolCallID: id, Content: "text", IsError: failed})
	}
	messages := []api.Message{
		message(protocol.Message{Role: protocol.RoleUser, Content: "read them"}),
		message(protocol.Message{Role: protocol.RoleAssistant, Content: "I read.", ToolCalls: []protocol.ToolCall{reads("0", "/etc/shadow"), reads("1", "a.go")}}),
		result("0", true), result("1", false),
		message(protocol.Message{Role: protocol.RoleAssistant, ToolCalls: []protocol.ToolCall{reads("0", "b.go"), reads("2", "c.go")}}), // ids of a service that counts anew
		result("0", false),
		message(protocol.Message{Role: protocol.RoleUser, Content: "count"}),
		message(protocol.Message{Role: protocol.RoleAssistant, Content: "1 2 3", Interrupted: true}),
	}
	for _, tt := range []struct {
		look look
		want string
	}{
		{look{width: 80}, `
you> read them
I read.
✗ read_file /etc/shadow failed
● read_file a.go
● read_file b.go
● read_file c.go (no result)

you> count
1 2 3
· (interrupted)`},
		{look{width: 80, plain: true}, `
you> read them
I read.
tool read_file /etc/shadow failed
tool read_file a.go
tool read_file b.go
tool read_file c.go (no result)

you> count
1 2 3
· (interrupted)`},
	} {
		if diff := cmp.Diff(tt.want, ansi.Strip(strings.Join(tt.look.past(messages), "\n"))); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}
