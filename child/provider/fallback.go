package provider

import (
	"context"
	"errors"
	"iter"

	"nexus.internal/protocol"
)

// Fallback asks a second provider in the place of a first one that is down: whose last try
// failed, before anything of an answer came, because its service cannot be reached, fails,
// or wants to be left alone. It then asks the second one alone. It belongs to one turn, and
// is not safe for concurrent use.
type Fallback struct {
	Provider // the first
	Second   Provider
	Model    string // of the second
	Name     string // of both, for the asker

	switched bool
	used     protocol.TurnUsage
}

// Stream implements [Provider]. A Switched comes before what the second one answers first.
func (f *Fallback) Stream(ctx context.Context, r Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		if !f.switched {
			if why := f.askFirst(ctx, r, yield); why == "" {
				return
			} else if f.switched = true; !yield(Switched{Model: f.Name, Reason: why}, nil) {
				return
			}
		}
		f.askSecond(ctx, r, yield)
	}
}

// askFirst returns why the second one is to be asked; "" if it is not.
func (f *Fallback) askFirst(ctx context.Context, r Request, yield func(Delta, error) bool) string {
	begun := false
	for d, err := range f.Provider.Stream(ctx, r) {
		if e, ok := errors.AsType[*Error](err); ok && !begun && ctx.Err() == nil && (e.Reason == protocol.Unreachable || e.Reason == protocol.RateLimited) {
			return e.Brief
		}
		if !yield(d, err) || err != nil {
			return ""
		}
		if _, again := d.(Retry); !again {
			begun = true
		}
	}
	return ""
}

func (f *Fallback) askSecond(ctx context.Context, r Request, yield func(Delta, error) bool) {
	all := r.Lost
	var lost protocol.TurnUsage
	r.Model, r.Lost = f.Model, &lost
	defer func() {
		f.used.Add(lost)
		if all != nil {
			all.Add(lost)
		}
	}()
	for d, err := range f.Second.Stream(ctx, r) {
		if stop, ok := d.(Stop); ok {
			f.used.Add(stop.Usage)
		}
		if !yield(d, err) {
			return
		}
	}
}

// Used is what the second one used.
func (f *Fallback) Used() protocol.TurnUsage { return f.used }
