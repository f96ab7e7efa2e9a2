package toolenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nexus.internal/child/permission"
	"nexus.internal/child/snapshot"
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
// may write there now. That they would have to ask is no matter, as the parent wants it, but with unasked.
func (c Changes) Undo(ctx context.Context, messages []protocol.Message, unasked bool) (u protocol.FilesUndone) {
	env := c.env
	if env == nil {
		return u
	}
	u.Restored, u.Left = file.Undo(ctx, env.snapshots, rewriter{env, env.currentPolicy(), unasked}, messages[0].At)
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

// rewriter implements [file.Rewriter]: a change is taken back by the rules for the tool that made it.
type rewriter struct {
	env     *Env
	policy  permission.Policy
	unasked bool // nothing is done that the tool would have to ask about
}

func (r rewriter) Rewrite(e *snapshot.Entry) (s, unasked file.Space, err error) {
	if e.Tool != "" {
		return r.by(e.Tool, e)
	}
	var first error
	for _, k := range r.env.builtins { // any of them could have made it
		if k.action != protocol.ActionWrite {
			continue
		}
		if s, unasked, err = r.by(k.name, e); err == nil {
			return s, unasked, nil
		}
		first = cmp.Or(first, err)
	}
	return s, unasked, first
}

// by is Rewrite for the change of a tool.
func (r rewriter) by(name string, e *snapshot.Entry) (s, unasked file.Space, err error) {
	policy := underSame(r.policy, name)
	if name == patchName {
		switch {
		case e.From != "":
			policy = policy.HeldTo(name, "move_file")
		case e.Is == snapshot.State{}:
			policy = policy.HeldTo(name, "delete_file")
		case e.Was != snapshot.Past{}:
			policy = policy.HeldTo(name, "edit_file")
		}
	}
	if d := policy.Tool(name, protocol.ActionWrite); d.Verdict == permission.Deny {
		return s, unasked, errors.New(d.Reason)
	}
	call := permission.Call{Tool: name, Action: protocol.ActionWrite, Paths: append([]string{e.Path}, e.Made...)}
	if e.From != "" {
		call.Paths = append(call.Paths, e.From)
	}
	if d := policy.Decide(call); r.unasked && d.Verdict == permission.Ask {
		return s, unasked, fmt.Errorf("%s, and whoever wants it undone may not allow that", d.Reason)
	}
	s = r.env.Space(tool.Call{Name: name, Permit: policy.PermitOnce(call)})
	unasked = r.env.Space(tool.Call{Name: name, Permit: permission.Permit{Policy: policy}})
	return s, unasked, nil
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
