package tool

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	defaultParallel  = 5
	defaultTimeout   = 300 * time.Second
	defaultMaxOutput = 64 << 10

	// maxStuck bounds the goroutines that tools which do not return can hold.
	maxStuck = 16
)

// Options bounds a [Registry]. The zero value of a field means its default.
type Options struct {
	Parallel  int           // reads that run at once in one Run; default 5
	Timeout   time.Duration // for one call, whatever it names; default 300 s, or longer if a Timed tool says so
	MaxOutput int           // bytes of one result; default 64 KiB
	Output    bool          // pass on what tools put out while they run; SetOutput changes it
	Guard     Guard         // is asked before each call; default lets all run
	Spill     Spill         // default keeps nothing
	Notices   Notices       // stand at the end of a result; default none
	// Processors are those of the process: several calls at once use all; nil changes nothing.
	Processors *Processors
	Log        *zap.Logger // hears of panics and of tools that are stuck; default none
}

// Spill keeps what is too long for a result. It is safe for concurrent use.
type Spill interface {
	// Save keeps a result of the tool and says where.
	Save(tool, text string) (path string, err error)
}

// Notices gives what the model is to know and did not ask for, once: lines; "" for none. It is
// safe for concurrent use.
type Notices interface{ Notices() string }

// Registry is a fixed set of tools. It is safe for concurrent use.
//
// Every call runs in a goroutine that the registry owns. Run joins it, unless
// the tool has not returned 50 ms after its context ended: then the call is
// given up, the goroutine stays counted in [Registry.Stuck], and [Registry.Wait]
// joins it when the tool returns at last. While 16 calls are stuck, further
// calls are refused.
type Registry struct {
	options Options
	tools   map[string]Tool
	specs   []Spec
	*calls
}

// calls are those of a registry and of all that took its place.
type calls struct {
	running sync.WaitGroup // the goroutines
	stuck   atomic.Int64
	timeout atomic.Int64 // Options.Timeout, in nanoseconds
	output  atomic.Bool  // Options.Output
}

// SetTimeout changes Options.Timeout, for calls that begin later; 0 is the default. It holds for
// all registries that took the place of this one, too.
func (r *Registry) SetTimeout(d time.Duration) { r.timeout.Store(int64(d)) }

// Timeout is Options.Timeout as it is now; 0 is the default.
func (r *Registry) Timeout() time.Duration { return time.Duration(r.timeout.Load()) }

// SetOutput changes Options.Output, also for calls that run. It holds for all registries that
// took the place of this one, too.
func (r *Registry) SetOutput(on bool) { r.output.Store(on) }

// Output reports whether it is passed on now.
func (r *Registry) Output() bool { return r.output.Load() }

// NewRegistry makes a registry of the tools, in their order. Two tools of one
// name are a fault of the program, so it panics.
func NewRegistry(tools []Tool, o Options) *Registry {
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	if o.MaxOutput <= 0 {
		o.MaxOutput = defaultMaxOutput
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	r := &Registry{options: o, calls: &calls{}}
	r.SetTimeout(o.Timeout)
	r.SetOutput(o.Output)
	r.fill(tools)
	return r
}

// timeLimit is how long a call may take. A Timed tool is given a while longer than it takes
// itself: it knows better what to say about the end of its time.
func (r *Registry) timeLimit(t Tool, call Call) time.Duration {
	if limit := time.Duration(r.timeout.Load()); limit > 0 {
		return limit
	}
	if timed, ok := t.(Timed); ok {
		return max(defaultTimeout, timed.TimeLimit(call.Input)+lateGrace)
	}
	return defaultTimeout
}

// Replaced is a registry of other tools and with another guard, to take the
// place of r. What runs in either counts for both.
func (r *Registry) Replaced(tools []Tool, g Guard) *Registry {
	next := &Registry{options: r.options, calls: r.calls}
	next.options.Guard = g
	next.fill(tools)
	return next
}

func (r *Registry) fill(tools []Tool) {
	r.tools, r.specs = make(map[string]Tool, len(tools)), make([]Spec, 0, len(tools))
	for _, t := range tools {
		spec := t.Spec()
		if _, twice := r.tools[spec.Name]; twice {
			panic("tool: two tools are named " + spec.Name)
		}
		r.tools[spec.Name] = t
		r.specs = append(r.specs, spec)
	}
}

// Specs describes the tools, in the order of NewRegistry. The slice must not
// be changed. A nil registry has none.
func (r *Registry) Specs() []Spec {
	if r == nil {
		return []Spec{}
	}
	return r.specs
}

// Stuck is the number of calls that were given up and have not returned yet.
func (r *Registry) Stuck() int { return int(r.stuck.Load()) }

// Wait returns when no call runs any more, stuck ones included, or with the
// error of ctx. No Run may begin meanwhile.
func (r *Registry) Wait(ctx context.Context) error {
	idle := make(chan struct{})
	go func() { // ends with the last tool, which is what the caller asks about
		r.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
