package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"nexus.internal/child/sandbox"
)

// Start starts the program of a server. It ends when ctx does.
type Start func(ctx context.Context, s Spec) (Process, error)

// Spec is what to start.
type Spec struct {
	Argv   []string
	Dir    string
	Env    []string  // KEY=VALUE; the program gets no other variable that may hold a secret
	Stderr io.Writer // safe for concurrent use; does not wait
}

// Process is a program that runs. Its methods are safe for concurrent use, but
// for the reads of Stdout.
type Process interface {
	Stdin() Input
	Stdout() io.Reader // ends when the program has
	Kill()             // all that it has started, too; does not wait
	Wait() error       // how it ended; nil is exit status 0
	Close()            // kills, waits, gives up the pipes
}

// Input is a program's stdin.
type Input interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

// Sandboxed starts programs by [sandbox.Start], under the rules of the moment.
// A program may use any time on the processor, as it lives as long as the agent.
func Sandboxed(rules func() (sandbox.Rules, error)) Start {
	return func(ctx context.Context, s Spec) (Process, error) {
		r, err := rules()
		if err != nil {
			return nil, err
		}
		if r.Limits.CPU == 0 {
			r.Limits.CPU = -1
		}
		p, err := sandbox.Start(ctx, sandbox.Spec{
			Argv: s.Argv, Dir: s.Dir, Env: s.Env, Rules: r, Stdin: true, Stderr: s.Stderr,
		})
		if err != nil {
			return nil, err
		}
		return confined{p}, nil
	}
}

// confined is a [sandbox.Process] as a [Process].
type confined struct{ *sandbox.Process }

func (c confined) Stdin() Input      { return c.Process.Stdin() }
func (c confined) Stdout() io.Reader { return c.Process.Stdout() }

func (c confined) Wait() error {
	switch exit := c.Process.Wait(); {
	case exit.Signal != 0:
		return fmt.Errorf("killed by signal %d (%v)", int(exit.Signal), exit.Signal)
	case exit.Code != 0:
		return fmt.Errorf("exit status %d", exit.Code)
	default:
		return nil
	}
}

var errNoStart = errors.New("no programs can be started here")
