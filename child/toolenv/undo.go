package toolenv

import (
	"context"
	"slices"
	"time"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/protocol"
)

// Changes are what the tools of an Env change in files.
type Changes struct{ env *Env } // nil: there are none

// Changes are what the agent's tools change in files; none for a nil Env.
func (env *Env) Changes() Changes { return Changes{env} }

// BeginTurn says that what tools change from now on belongs to the turn of the prompt of then.
func (c Changes) BeginTurn(at time.Time) {
	if c.env != nil {
		c.env.snapshots.BeginTurn(at)
	}
}

// Undo takes back what the tools changed in a turn, whose messages are given, as far as they
// may write there now; that they would have to ask is no matter, as the parent wants it.
func (c Changes) Undo(ctx context.Context, messages []protocol.Message) (u protocol.FilesUndone) {
	env := c.env
	if env == nil {
		return u
	}
	const writer = "write_file"
	call := permission.Call{Tool: writer, Action: protocol.ActionWrite}
	turn := messages[0].At
	for _, e := range env.snapshots.Turn(turn) {
		call.Paths = append(append(call.Paths, e.Path), e.Made...)
		if e.From != "" {
			call.Paths = append(call.Paths, e.From)
		}
	}
	policy := env.currentPolicy()
	space := env.Space(tool.Call{Name: writer, Permit: policy.PermitOnce(call)})
	unasked := env.Space(tool.Call{Name: writer, Permit: permission.Permit{Policy: policy}})
	u.Restored, u.Left = file.Undo(ctx, space, unasked, turn)
	for _, m := range messages {
		if m.Role != protocol.RoleTool {
			continue
		}
		for _, path := range m.Changed {
			if !slices.Contains(u.Restored, path) && !slices.ContainsFunc(u.Left, func(l protocol.FileLeft) bool { return l.Path == path }) {
				u.Left = append(u.Left, protocol.FileLeft{Path: path, Reason: "what was there is not kept"})
			}
		}
		if c.elsewhere(m.ToolName) && !slices.Contains(u.NotUndone, m.ToolName) {
			u.NotUndone = append(u.NotUndone, m.ToolName)
		}
	}
	return u
}

// elsewhere reports whether a tool may change files of which nothing is kept: by programs, by
// other agents, or by somebody else's code.
func (c Changes) elsewhere(name string) bool {
	i := slices.IndexFunc(c.env.builtins, func(k builtin) bool { return k.name == name })
	if i < 0 {
		return true // it is of an MCP server
	}
	switch c.env.builtins[i].action {
	case protocol.ActionRead, protocol.ActionWrite, protocol.ActionFetch:
		return false
	case protocol.ActionExecute, protocol.ActionExternal, protocol.ActionDelegate, protocol.ActionNone:
	}
	return !slices.Contains([]string{"sleep", "todo", "job_output", "job_list", "job_stop"}, name) // they touch nothing
}

// Forget lets go of what files were before a turn that is gone.
func (c Changes) Forget(at time.Time) {
	if c.env != nil {
		c.env.snapshots.Forget(at)
	}
}
