package toolenv

import (
	"context"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
)

// confines says whether the kernel can confine programs. It does not change.
var confines = sync.OnceValue(func() bool { return sandbox.Supported() == nil })

// shellTool is the tool shell in the directory and under the rules of each call.
type shellTool struct {
	tool.Scoped // that never runs
	work        *Env
}

func newShellTool(env *Env) shellTool { return shellTool{shell.New(shell.Options{}), env} }

func (c shellTool) Run(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	g := c.work.grant(ctx)
	defer c.work.spill.prune()
	result, err := shell.New(shell.Options{
		Dir: g.policy.Cwd, Rules: c.work.Rules(ctx, c.Spec().Name), OutputDir: c.work.spill.dir,
	}).Run(ctx, in)
	switch {
	case err != nil || !result.IsError:
	case g.readOnly:
		result.Text += "\n[a command that runs without approval can change nothing, and read only the working directory and what is allowed beside it]"
	case g.covered:
		result.Text += "\n[a command that was allowed for the session can read only the working directory and what is allowed beside it, whatever links lead elsewhere]"
	}
	return result, err
}
