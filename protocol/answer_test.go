package protocol_test

import (
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
)

// A response has ok, then the members of its answer, in the order of the type, and text
// that is not UTF-8 is written all the same.
func TestResponsesAreWritten(t *testing.T) {
	no := protocol.Refusal{Error: "no \xff", Reason: protocol.NotSaved, Permissions: &protocol.Permissions{Preset: "sandboxed"}, Granted: &protocol.Permissions{Preset: "trusted"}}
	for _, tt := range []struct {
		r    protocol.Response
		want string
	}{
		{protocol.SuccessResponse(protocol.Ping{ID: "1"}, protocol.Acknowledged{}), `{"type":"response","id":"1","command":"ping","ok":true}`},
		{
			protocol.SuccessResponse(protocol.SetModel{ID: "2"}, protocol.SetModelAnswer{Model: "m", Provider: "p"}),
			`{"type":"response","id":"2","command":"set_model","ok":true,"model":"m","provider":"p"}`,
		},
		{
			protocol.SuccessResponse(protocol.GetMessages{ID: "3"}, protocol.MessagesPage{Messages: jsontext.Value(`[{"role":"user"}]`), Total: 7}),
			`{"type":"response","id":"3","command":"get_messages","ok":true,"messages":[{"role":"user"}],"total":7,"offset":0}`,
		},
		{
			protocol.FailureResponse("4", "set_permissions", no),
			`{"type":"response","id":"4","command":"set_permissions","ok":false,"error":"no �","reason":"not_saved","permissions":{"preset":"sandboxed"},"granted":{"preset":"trusted"}}`,
		},
	} {
		got, err := protocol.AppendEvent(nil, tt.r)
		if diff := cmp.Diff(tt.want, string(got)); diff != "" || err != nil {
			t.Errorf("(-want +got) %v:\n%s", err, diff)
		}
	}
}

// An answer is read whoever wrote it: what is not known is passed over, what may be
// missing is zero, and what is missing or of another type is named.
func TestAnswersAreRead(t *testing.T) {
	state, err := protocol.GetState{}.Answer(protocol.Response{Body: jsontext.Value(`{"ok":true,"model":"m","later":[1],"permissions":{"later":1}}`)})
	if err != nil || !cmp.Equal(state, protocol.State{Model: "m"}) {
		t.Errorf("%+v, %v", state, err)
	}
	stats, err := protocol.GetSessionStats{}.Answer(protocol.Response{Body: jsontext.Value(`{"ok":true,"input_tokens":3,"turns":2}`)})
	if err != nil || stats.InputTokens != 3 || stats.Turns != 2 {
		t.Errorf("%+v, %v", stats, err)
	}
	for _, tt := range []struct{ command, body, want string }{
		{"get_messages", `{"ok":true,"messages":[],"total":0}`, `member "offset" is missing`},
		{"compact", `{"ok":true}`, `member "compacted" is missing`},
		{"get_session_stats", `{"ok":true,"input_tokens":"3"}`, `member "input_tokens" must be a non-negative integer, is a string`},
		{"get_state", `{"ok":true,"mcp_servers":[{"name":"a"}]}`, `member "mcp_servers[0].transport" is missing`},
		{"get_available_models", `{"ok":true,"models":[7]}`, `member "models[0]" must be an object, is the number 7`},
	} {
		for _, c := range protocol.Commands() {
			if c.Name() != tt.command {
				continue
			}
			r := protocol.Response{Body: jsontext.Value(tt.body)}
			err := reflect.ValueOf(c).MethodByName("Answer").Call([]reflect.Value{reflect.ValueOf(r)})[1]
			if err.IsNil() || err.Interface().(error).Error() != tt.want {
				t.Errorf("%s %s: %v, want %s", tt.command, tt.body, err, tt.want)
			}
		}
	}
}

// A response refuses its command by ok alone.
func TestRefusalsAreRead(t *testing.T) {
	for body, want := range map[string]*protocol.Refusal{
		`{"ok":true,"error":"no"}`: nil,
		`{}`:                       nil,
		`{"ok":"false"}`:           nil,
		`{"ok":false}`:             {},
		`{"ok":false,"error":"no","reason":"storage_full","permissions":{"preset":"trusted","later":1},"later":1}`: {
			Error: "no", Reason: protocol.StorageFull, Permissions: &protocol.Permissions{Preset: "trusted"},
		},
		`{"ok":false,"error":"no","permissions":{}}`: {Error: `the refusal cannot be read: member "permissions.preset" is missing`},
	} {
		if diff := cmp.Diff(want, protocol.Response{Body: jsontext.Value(body)}.Refusal()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

// Every command that Do can carry gets the id that it is sent with.
func TestRequestsTakeAnID(t *testing.T) {
	for _, c := range protocol.Commands() {
		one, ok := c.(interface {
			WithID(id string) protocol.Command
		})
		switch c.(type) {
		case protocol.Prompt, protocol.FollowUp, protocol.HostResult, protocol.Shutdown:
			if ok {
				t.Errorf("%s can be asked by one call", c.Name())
			}
		default:
			if !ok || one.WithID("x").Ident() != "x" || one.WithID("x").Name() != c.Name() {
				t.Errorf("%s takes no id", c.Name())
			}
		}
	}
}
