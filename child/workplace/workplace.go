// Package workplace is where an agent works: its directory, what it may do
// there, and the tools that follow from both.
//
//	w, err := workplace.Open(workplace.Options{Cwd: dir, Permissions: asked, Parent: parent})
//	registry := w.Tools()          // for the next turn
//	err = w.SetCwd(dir)            // holds from the turn after
//	err = w.SetPermissions(asked)
//
// A Workplace is safe for concurrent use and starts no goroutine; Close ends
// what its tools hold. A turn that runs keeps the tools it began with, but each
// of its calls is judged by the permissions of the moment. See SPEC.md §4.5.
package workplace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/child/tool/sleep"
	"nexus.internal/child/upcall"
	"nexus.internal/protocol"
)

// Source gives tools that come and go, as those of MCP servers do. It is safe
// for concurrent use.
type Source interface{ Tools() []tool.Tool }

// Options says what a workplace is made of.
type Options struct {
	// Cwd is the working directory, absolute.
	Cwd string
	// Permissions are what is asked for; Ceiling is what they cannot exceed,
	// nil for no bound.
	Permissions protocol.Permissions
	Ceiling     *protocol.Permissions
	// Allowances were granted earlier in this session.
	Allowances []protocol.Allowance
	// OnAllow saves a new allowance; nil saves none.
	OnAllow func(protocol.Allowance) error
	// Parent is asked where the permissions say so; nil denies.
	Parent *upcall.Parent
	// Sources give tools beside the built-in ones.
	Sources []Source
	// Timeout bounds one call; 0 means the registry's default.
	Timeout time.Duration
	// Log may be nil.
	Log *zap.Logger
}

// Workplace is where one agent works.
type Workplace struct {
	options Options

	mu       sync.Mutex // guards all below
	cwd      string
	asked    protocol.Permissions
	preset   permission.Preset
	files    []tool.Tool
	closers  []io.Closer // of files, and of those that a running turn may still use
	registry *tool.Registry
}

// Open opens the directory. The error says what is wrong with it or with the
// permissions.
func Open(o Options) (*Workplace, error) {
	w := &Workplace{options: o}
	if err := w.SetPermissions(o.Permissions); err != nil {
		return nil, err
	}
	if err := w.SetCwd(o.Cwd); err != nil {
		return nil, err
	}
	return w, nil
}

// Tools are those of the next turn.
func (w *Workplace) Tools() *tool.Registry {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.registry == nil {
		w.registry = tool.NewRegistry(w.allowed(), tool.Options{Timeout: w.options.Timeout, Log: w.options.Log, Guard: w.guard})
	}
	return w.registry
}

func (w *Workplace) allowed() []tool.Tool {
	all := append(slices.Clone(w.files), sleep.New())
	for _, s := range w.options.Sources {
		all = append(all, s.Tools()...)
	}
	return slices.DeleteFunc(all, func(t tool.Tool) bool {
		name := t.Spec().Name
		ok, _ := w.preset.Allows(name)
		return !ok || slices.Contains(w.asked.DisabledTools, name)
	})
}

// guard implements [tool.Guard].
func (w *Workplace) guard(_ context.Context, t tool.Tool, _ protocol.ToolCall) error {
	w.mu.Lock()
	preset := w.preset
	w.mu.Unlock()
	if ok, reason := preset.Allows(t.Spec().Name); !ok {
		return errors.New(reason)
	}
	return nil
}

// Cwd is the working directory, absolute.
func (w *Workplace) Cwd() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cwd
}

// Permissions are those that hold.
func (w *Workplace) Permissions() protocol.Permissions {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// SetCwd moves to another directory, for the turns to come. On an error nothing
// has changed.
func (w *Workplace) SetCwd(dir string) error {
	files, closer, err := file.Tools(dir)
	if err != nil {
		return fmt.Errorf("open working directory: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cwd, w.files, w.registry = dir, files, nil
	w.closers = append(w.closers, closer)
	return nil
}

// SetPermissions asks for other permissions, which hold at once. On an error
// nothing has changed.
func (w *Workplace) SetPermissions(asked protocol.Permissions) error {
	preset, err := permission.Parse(asked.Preset)
	if err != nil {
		return err
	}
	asked.Preset = preset.String()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked, w.preset, w.registry = asked, preset, nil
	return nil
}

// Close gives back what the tools hold.
func (w *Workplace) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, c := range w.closers {
		errs = append(errs, c.Close())
	}
	w.closers = nil
	return errors.Join(errs...)
}
