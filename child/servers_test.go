package child_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"nexus.internal/child/mcp"
)

// MCP servers are started before a turn, and anew where the working directory
// or the permissions have changed.
func TestServers(t *testing.T) {
	const dir = "/usr" // whose name leaves room in the model's window
	synctest.Test(t, func(t *testing.T) {
		o, starts := options(), 0
		o.Servers = mcp.New(mcp.Options{
			Servers: []mcp.Server{{Name: "one", Command: "x"}, {Name: "off", Command: "x", Disabled: true}},
			Start: func(context.Context, mcp.Spec) (mcp.Process, error) {
				starts++
				return nil, errors.New("no such program")
			},
		})
		turn := func(id string) []string {
			return []string{
				`> {"type":"prompt","id":"` + id + `","message":"say it"}`, text, `< {"type":"agent_end"}`, `< {"type":"response","id":"` + id + `","ok":true}`,
			}
		}
		script := append(turn("1"),
			`> {"type":"get_state","id":"g"}`, `< {"id":"g","mcp_servers":"*"}`,
			`> {"type":"set_cwd","id":"c","cwd":"`+dir+`"}`, `< {"id":"c","ok":true}`)
		script = append(script, turn("2")...)
		script = append(script, `> {"type":"set_permissions","id":"p","preset":"sandboxed"}`, `< {"id":"p","ok":true}`)
		playHere(t, o, append(script, turn("3")...))
		if starts != 3 {
			t.Errorf("started %d times, want 3", starts)
		}
		if status := o.Servers.Status(); len(status) != 2 || status[0].State != "failed" || status[1].State != "disabled" {
			t.Errorf("got %+v", status)
		}
		if err := o.Servers.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
