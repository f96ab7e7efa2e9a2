package workplace

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

// command is the tool shell in the directory and under the rules of each call.
type command struct {
	tool.Scoped // that never runs
	work        *Workplace
}

func newCommand(w *Workplace) command { return command{shell.New(shell.Options{}), w} }

func (c command) Run(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	g := c.work.grant(ctx)
	defer c.work.scratch.tidy()
	result, err := shell.New(shell.Options{
		Dir: g.policy.Cwd, Rules: c.work.Rules(ctx, c.Spec().Name), OutputDir: c.work.scratch.dir,
	}).Run(ctx, in)
	switch {
	case err != nil || !result.IsError:
	case g.looking:
		result.Text += "\n[a command that runs without approval can change nothing, and read only the working directory and what is allowed beside it]"
	case g.covered:
		result.Text += "\n[a command that was allowed for the session can read only the working directory and what is allowed beside it, whatever links lead elsewhere]"
	}
	return result, err
}
