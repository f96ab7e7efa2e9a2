package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

const savedText = `{"type":"session","version":1,"session_id":"s","created_at":"2026-01-02T03:04:05Z"}` + "\n"

// The last session is the one that a person sent to, not one that an agent
// began; it is known to the home when the server ends, however many were talked
// to in turn.
func TestLastSession(t *testing.T) {
	r := rigged(t, nil)
	for i := range 30 {
		id := fmt.Sprint("agent-", i)
		r.save("home/sessions/"+id+".jsonl", []byte(savedText), 1)
		if _, err := client.Do(r.ctx(), r.client, id, api.Send, api.SendParams{Content: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	r.create("boss")
	if _, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("helper"), ParentAgentID: new("boss")}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r.ctx(), r.client, "helper", api.Send, api.SendParams{Content: "x"}); err != nil {
		t.Fatal(err)
	}
	list, err := client.Do(r.ctx(), r.client, "", api.ListSessions, api.ListSessionsParams{})
	if err != nil || protocol.Value(list.LastSession) != "agent-29" {
		t.Errorf("the last session is %q, %v", protocol.Value(list.LastSession), err)
	}
	r.stop()
	<-r.served
	if got := r.sessions.Last(); got != "agent-29" {
		t.Errorf("the home says %q", got)
	}
}

// What was taken from an agent and could not be saved is saved before its session is
// copied, and without room there is no copy; a list has what the agent may do.
func TestCopiesHaveWhatWasTaken(t *testing.T) {
	full := true
	r := rigged(t, func(r *rig, _ *bridge.Options) {
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
				switch cmd.(type) {
				case protocol.GetState:
					return stateful(c, cmd)
				case protocol.SetPermissions:
					answer := map[string]any{"ok": true, "permissions": map[string]any{"preset": "sandboxed"}}
					if full {
						answer["ok"], answer["error"], answer["reason"] = false, "no space left", protocol.StorageFull
					} else {
						r.save("home/sessions/a.jsonl", []byte(savedText+`{"type":"settings","permissions":{"preset":"sandboxed"},"at":"2026-01-02T03:04:05Z"}`+"\n"), 1)
					}
					c.Respond(cmd, answer)
					return true
				}
				return false
			}}
		}
	})
	copies := []string{
		`"clone_session","params":{"src_session":"a","dest_session":"cloned"}`,
		`"save_session","params":{"agent_id":"a","session_name":"saved"}`,
		`"load_session","params":{"session_name":"a","agent_id":"loaded"}`,
		`"save_session","params":{"agent_id":"a"}`,
		`"rename_session","params":{"old_name":"a","new_name":"renamed"}`,
	}
	narrow := func() {
		full = true
		r.save("home/sessions/a.jsonl", []byte(savedText+`{"type":"settings","permissions":{"preset":"trusted"},"at":"2026-01-02T03:04:05Z"}`+"\n"), 1)
		if _, body := r.post("/agent/a", `{"jsonrpc":"2.0","id":1,"method":"set_permissions","params":{"preset":"sandboxed"}}`); gjson.Get(body, "error.data.type").Str != "STORAGE_FULL" {
			t.Fatal(body)
		}
	}
	r.create("a")
	for _, one := range copies {
		narrow()
		_, body := r.post("/", `{"jsonrpc":"2.0","id":1,"method":`+one+`}`)
		if gjson.Get(body, "error.data.type").Str != "STORAGE_FULL" {
			t.Errorf("without room: %s: %s", one, body)
		}
		list, err := client.Do(r.ctx(), r.client, "", api.ListSessions, api.ListSessionsParams{})
		if err != nil {
			t.Fatal(err)
		}
		for _, saved := range list.Sessions {
			if saved.Name == "a" && protocol.Value(saved.PermissionLevel) != "sandboxed" {
				t.Errorf("the list has %+v", saved)
			}
		}
		full = false
		if _, body := r.post("/", `{"jsonrpc":"2.0","id":1,"method":`+one+`}`); gjson.Get(body, "error").Exists() {
			t.Errorf("with room: %s: %s", one, body)
		}
	}
	for _, name := range []string{"cloned", "saved", "loaded", "renamed"} {
		if saved, err := r.sessions.Summary(name); err != nil || saved.Settings.Permissions == nil || saved.Settings.Permissions.Preset != "sandboxed" {
			t.Errorf("%s: %+v, %v", name, saved.Settings.Permissions, err)
		}
	}
}

// A temporary agent that is destroyed leaves its session only as long as it is
// the last that a person used; no agent takes its name meanwhile.
func TestLastTemporarySession(t *testing.T) {
	f := familyOf(t, "trusted")
	r := f.rig
	if _, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new(".1")}); err != nil {
		t.Fatal(err)
	}
	<-f.asked
	r.save("home/run/temp/.1.jsonl", []byte(savedText), 1)
	if _, err := client.Do(r.ctx(), r.client, ".1", api.Send, api.SendParams{Content: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: ".1"}); err != nil {
		t.Fatal(err)
	}
	_, refused := r.server.HostCall(r.ctx(), supervisor.Caller{AgentID: "trusted"}, "create_agent", []byte(`{"agent_id":".1"}`))
	if refused == nil || refused.Message != "Not permitted: .1 is what a person used last: choose another name" {
		t.Errorf("an agent takes the name: %+v", refused)
	}
	if _, err := r.sessions.Summary(".1"); err != nil {
		t.Errorf("the last session is gone: %v", err)
	}
	loaded, err := client.Do(r.ctx(), r.client, "", api.LoadSession, api.LoadSessionParams{Last: new(true)})
	if err != nil || loaded.AgentID != ".1" || !loaded.Restored {
		t.Errorf("got %+v, %v", loaded, err)
	}
	if p := <-f.asked; p.Fresh {
		t.Error("its limits would begin anew")
	}
	if _, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: ".1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r.ctx(), r.client, "trusted", api.Send, api.SendParams{Content: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.sessions.Summary(".1"); err == nil {
		t.Error("it is not the last any more, and still there")
	}
}

// A preset that is more than a session has is refused by load_session, and nothing is started; one
// that is as much or less is taken.
func TestLoadWithPreset(t *testing.T) {
	r := rigged(t, nil)
	settings := func(permissions string) []byte {
		return []byte(savedText + `{"type":"settings","at":"2026-01-20T09:06:02Z","permissions":` + permissions + `}` + "\n")
	}
	r.save("home/sessions/low.jsonl", settings(`{"preset":"sandboxed"}`), 1)
	r.save("home/sessions/high.jsonl", settings(`{"preset":"trusted"}`), 2)
	r.save("home/sessions/old.jsonl", []byte(savedText), 3)
	for _, tt := range []struct{ session, preset, want string }{
		{"low", "trusted", "trusted is more than the session has, which is sandboxed"},
		{"old", "trusted", "trusted is more than the session has, which is sandboxed"},
		{"high", "yolo", "yolo cannot be granted over RPC"},
		{"low", "sandboxed", `"restored":true`},
		{"old", "sandboxed", `"restored":true`},
		{"high", "sandboxed", `"restored":true`},
	} {
		_, body := r.post("/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"load_session","params":{"session_name":%q,"preset":%q}}`, tt.session, tt.preset))
		_, err := r.sup.Agent(tt.session)
		if !strings.Contains(body, tt.want) || (err == nil) != strings.Contains(body, `"restored":true`) {
			t.Errorf("%s as %s: %v, %s", tt.session, tt.preset, err, body)
		}
	}
}
