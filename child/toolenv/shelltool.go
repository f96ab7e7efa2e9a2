package toolenv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/child/tool/shell"
	"nexus.internal/protocol/rights"
)

// confines says whether the kernel can confine programs. It does not change.
var confines = sync.OnceValue(func() bool { return sandbox.Supported() == nil })

// shellTool is the tool shell in the directory and under the rules of each call.
type shellTool struct {
	shell.Tool // that never runs
	env        *Env
}

func newShellTool(env *Env) shellTool { return shellTool{shell.New(shell.Options{}), env} }

// told is the tool with what holds for its programs in its description.
func (s shellTool) told(walls string) shellTool {
	s.Tool = shell.New(shell.Options{Walls: walls})
	return s
}

// Scope implements [tool.Scoped].
func (s shellTool) Scope(in jsontext.Value) (tool.Scope, error) {
	scope, err := s.Tool.Scope(in)
	return scope, errors.Join(err, beginsWithin(s.env, scope))
}

// beginsWithin says why a command cannot begin where it is to: nobody is asked about what fails then.
func beginsWithin(env *Env, scope tool.Scope) error {
	cwd := env.Cwd()
	for _, written := range scope.Paths {
		if !rights.Within(cwd, absolutePath(cwd, written)) {
			return fmt.Errorf("cwd %s is outside the working directory %s: a command begins there or below", written, cwd)
		}
		if way, _ := file.Follow(wholePath(cwd, written)); !rights.Within(cwd, way.Path) {
			return errors.New(leadsOut(written))
		}
	}
	return nil
}

func (s shellTool) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	defer s.env.spill.prune()
	began := time.Now()
	if c.Permit.ReadOnly {
		c = withSafeGit(c)
	}
	o := s.env.shellOptions(c)
	ctx, done := s.whilePermitted(ctx, c.Permit)
	defer done()
	result, err := shell.New(o).Run(ctx, c)
	switch {
	case err != nil, errors.Is(context.Cause(ctx), shell.ErrPermissions):
	case c.Permit.ReadOnly && result.IsError:
		result.Text += "\n[a command that runs without approval can change nothing, and read only the working directory and what is allowed beside it]"
	case c.Permit.Covered && result.IsError:
		result.Text += "\n[a command that was allowed for the session can read only the working directory and what is allowed beside it, whatever links lead elsewhere]"
	default:
		result.Text += hint(result, o.Rules)
	}
	if o.Rules.Home != "" {
		result.Text += s.env.home.prune(time.Since(began))
	}
	return result, err
}

// shellOptions are those of a call.
func (env *Env) shellOptions(c tool.Call) shell.Options {
	return shell.Options{Dir: c.Permit.Policy.Cwd, Rules: env.rules(c.Permit, c.Name), OutputDir: env.spill.dir, Hints: hints{}}
}
