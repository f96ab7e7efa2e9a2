package bridge_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/auth"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// asked records the changes that the children of a rig are asked for.
type asked struct {
	mu      sync.Mutex // guards changes
	changes []protocol.Command
}

// take returns the changes since the last one.
func (a *asked) take() []protocol.Command {
	a.mu.Lock()
	defer a.mu.Unlock()
	changes := a.changes
	a.changes = nil
	return changes
}

// change is what the children of a rig do then: they agree.
func (a *asked) change(r *rig, _ *bridge.Options) {
	r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
		return supervisortest.Play{Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
			switch cmd := cmd.(type) {
			case protocol.Undo:
				a.mu.Lock()
				a.changes = append(a.changes, cmd)
				a.mu.Unlock()
			case protocol.SetCwd, protocol.SetPermissions, protocol.MCPConnect:
				a.mu.Lock()
				a.changes = append(a.changes, cmd)
				a.mu.Unlock()
				if _, ok := cmd.(protocol.SetPermissions); ok {
					c.Respond(cmd, map[string]any{"ok": true, "permissions": map[string]any{"preset": "sandboxed"}})
					return true
				}
			}
			return stateful(c, cmd)
		}}
	}
}

// forTrusted are the bearers of two keys for the agent trusted-a: one that only narrows it, and one that may grant.
func forTrusted(t *testing.T, r *rig) (plain, granting string) {
	t.Helper()
	plain, _ = r.scoped(auth.ScopeAgent, "trusted-a")
	g := grant(auth.ScopeAgent, "trusted-a")
	g.MayGrant = true
	key, _, err := r.keys.Add(g)
	if err != nil {
		t.Fatal(err)
	}
	return plain, "Bearer " + key.Reveal()
}

// A key for one agent changes what the agent may do within what holds, one that may
// grant within what was granted, and the owner's as it likes. To approve a call and to
// start a server's program are for the latter two.
func TestAttackWidenWithAgentKey(t *testing.T) {
	var children asked
	r := rigged(t, children.change)
	r.create("trusted-a")
	plain, key := forTrusted(t, r)
	for _, caller := range []struct {
		name, bearer string
		within       protocol.Bound
	}{
		{"plain", plain, protocol.WithinHeld},
		{"granting", key, protocol.WithinGranted},
		{"owner", "Bearer " + r.key.Reveal(), protocol.WithinCeiling},
	} {
		for _, method := range []string{
			`"set_permissions","params":{"preset":"trusted"}`, `"set_permissions","params":{"disabled_tools":[]}`,
			`"set_permissions","params":{"preset":"trusted","allowed_paths":["/"]}`, `"set_cwd","params":{"cwd":"/"}`,
		} {
			children.take()
			_, body := r.post("/agent/trusted-a", `{"jsonrpc":"2.0","id":1,"method":`+method+`}`, "Authorization", caller.bearer)
			changes := children.take()
			if len(changes) != 1 {
				t.Fatalf("%s: %s: asked %v: %s", caller.name, method, changes, body)
			}
			var within protocol.Bound
			switch c := changes[0].(type) {
			case protocol.SetCwd:
				within = c.Within
			case protocol.SetPermissions:
				within = c.Within
				// What is not given stays as it is.
				if p := c.Permissions; within != protocol.WithinCeiling && (p == nil || fmt.Sprint(p.BlockedPaths) != "[/site/keys]") {
					t.Errorf("%s: %s: %+v", caller.name, method, p)
				}
			}
			if within != caller.within {
				t.Errorf("%s: %s: within %q, want %q", caller.name, method, within, caller.within)
			}
		}
		for _, method := range []string{
			`"mcp_connect","params":{"server":"files"}`, `"respond_permission","params":{"request_id":"x","decision":"allow_once"}`,
			`"respond_permission","params":{"request_id":"x","decision":"allow_session"}`,
			`"respond_permission","params":{"request_id":"x","d\u0065cision":"allow_once"}`, // the same name
		} {
			_, body := r.post("/agent/trusted-a", `{"jsonrpc":"2.0","id":1,"method":`+method+`}`, "Authorization", caller.bearer)
			denied := gjson.Get(body, "error.data.type").Str == "NOT_PERMITTED"
			if denied != (caller.within == protocol.WithinHeld) {
				t.Errorf("%s: %s: %s", caller.name, method, body)
			}
		}
		for params, raises := range map[string]bool{`{"tokens":8}`: true, `{"tokens":0}`: true, `{"tokens":7}`: false, `{"tokens":6}`: false} {
			_, body := r.post("/agent/trusted-a", `{"jsonrpc":"2.0","id":1,"method":"set_limits","params":{"limits":`+params+`}}`, "Authorization", caller.bearer)
			denied := gjson.Get(body, "error.data.type").Str == "NOT_PERMITTED"
			if denied != (raises && caller.within != protocol.WithinCeiling) {
				t.Errorf("%s: set_limits %s: %s", caller.name, params, body)
			}
			r.post("/agent/trusted-a", `{"jsonrpc":"2.0","id":1,"method":"set_limits","params":{"limits":{"tokens":7}}}`) // by the owner
		}
		_, body := r.post("/agent/trusted-a", `{"jsonrpc":"2.0","id":1,"method":"respond_permission","params":{"request_id":"x","decision":"deny"}}`, "Authorization", caller.bearer)
		if gjson.Get(body, "error.data.type").Str != "PERMISSION_REQUEST_NOT_FOUND" {
			t.Errorf("%s: deny: %s", caller.name, body)
		}
	}
}

// Undo of files by a key that only narrows leaves what the agent would have to ask about: such a key could not allow it.
func TestUndoWithAgentKey(t *testing.T) {
	var children asked
	r := rigged(t, children.change)
	r.create("trusted-a")
	plain, granting := forTrusted(t, r)
	for bearer, unasked := range map[string]bool{plain: true, granting: false, "Bearer " + r.key.Reveal(): false} {
		for _, files := range []bool{true, false} {
			_, body := r.post("/agent/trusted-a", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"undo","params":{"files":%t}}`, files), "Authorization", bearer)
			changes := children.take()
			if want := (protocol.Undo{Files: files, Unasked: files && unasked}); len(changes) != 1 || changes[0].(protocol.Undo).Files != want.Files || changes[0].(protocol.Undo).Unasked != want.Unasked {
				t.Errorf("the agent was asked %+v, want %+v: %s", changes, want, body)
			}
		}
	}
}
