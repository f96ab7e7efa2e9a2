package workplace

import (
	"context"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
)

// lookers are programs that are used to look at things. With these alone a
// command is run under trusted without asking, confined as under sandboxed and
// so that it can change nothing: whatever its arguments say, it looks.
var lookers = []string{
	"[", "basename", "cat", "cd", "cksum", "cmp", "column", "comm", "cut", "date", "diff", "dirname", "du", "echo", "egrep",
	"expr", "false", "fgrep", "file", "find", "fold", "grep", "head", "hexdump", "jq", "ls", "md5sum", "nl", "od", "paste",
	"printf", "pwd", "readlink", "realpath", "rev", "rg", "seq", "sha1sum", "sha256sum", "sleep", "sort", "stat", "strings",
	"tac", "tail", "test", "tr", "tree", "true", "type", "uname", "uniq", "wc", "which", "whoami", "xxd",
}

// confines says whether the kernel can confine programs. It does not change.
var confines = sync.OnceValue(func() bool { return sandbox.Supported() == nil })

// looking reports whether a call only looks at things.
func looking(s tool.Scope) bool {
	other := func(name string) bool { return !slices.Contains(lookers, name) }
	return s.Command != "" && len(s.Programs) > 0 && !slices.ContainsFunc(s.Programs, other) && confines()
}

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
	if err == nil && result.IsError && g.looking {
		result.Text += "\n[a command that runs without approval can change nothing, and read only the working directory and what is allowed beside it]"
	}
	return result, err
}
