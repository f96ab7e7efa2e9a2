package sessionlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
)

// Times of a Recorder.
const (
	retryAfter  = 2 * time.Second // after something could not be logged
	cleanEvery  = time.Hour       // what is older than KeepDays goes
	endPatience = 5 * time.Second // for what the agents did last
)

// Options say what a Recorder logs.
type Options struct {
	Home       string // of the sessions
	Supervisor *supervisor.Supervisor
	Sessions   *sessions.Catalogue
	History    History
	Log        *zap.Logger
	// Events says to write events.jsonl, too.
	Events bool
	// KeepDays is how many days a log is kept after its last entry once its session is gone; 0 is for good.
	KeepDays int
}

// History has the stored events of agents, in order; store.Local is one.
type History interface {
	Events(agent string, after uint64) iter.Seq2[supervisor.Event, error]
}

// Recorder logs the sessions of all agents of a server. Its methods are safe for concurrent use.
type Recorder struct {
	o       Options
	archive *Archive

	mu      sync.Mutex              // guards what follows
	fault   error                   // why nothing is logged now; nil if all is well
	writing map[int64]chan struct{} // by session: closed once its follower has ended
	newest  map[int64]uint64        // by session: the last registration that was claimed; a few bytes for each that was ever logged here
}

// NewRecorder returns a Recorder that writes to an archive that Create returned. What an earlier
// server was logging when it was killed is marked as orphaned, or as saved.
func NewRecorder(a *Archive, o Options) (*Recorder, error) {
	r := &Recorder{o: o, archive: a, writing: map[int64]chan struct{}{}, newest: map[int64]uint64{}}
	if err := a.settle(context.Background(), o.Home, o.Sessions, true, inNoServer); err != nil {
		return nil, fmt.Errorf("open the session logs: %w", err)
	}
	return r, nil
}

// Run logs until ctx ends, and then what the agents did until they ended: the caller ends ctx
// once they have. Then all goroutines have ended.
func (r *Recorder) Run(ctx context.Context) {
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var followers sync.WaitGroup
	followers.Go(func() { r.keepClean(ctx) })
	for after, running := uint64(0), true; running; {
		registered, changed := r.o.Supervisor.Registrations(after)
		for _, reg := range registered {
			after = reg.Number
			f := &follower{r: r, reg: reg, log: r.o.Log.With(zap.String("agent", reg.ID))}
			followers.Go(func() { f.run(following) })
		}
		select {
		case <-changed:
		case <-ctx.Done():
			running = false
		}
	}
	patience := time.AfterFunc(endPatience, stop)
	followers.Wait()
	patience.Stop()
	stop()
	if err := r.archive.settle(context.WithoutCancel(ctx), r.o.Home, r.o.Sessions, true, inNoServer); err != nil {
		r.failed(err)
	}
}

// keepClean removes old logs until ctx ends.
func (r *Recorder) keepClean(ctx context.Context) {
	tick := time.NewTicker(cleanEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.clean(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// clean removes the logs that are older than they are kept.
func (r *Recorder) clean(ctx context.Context) {
	if r.o.KeepDays == 0 {
		return
	}
	err := r.archive.settle(ctx, r.o.Home, r.o.Sessions, false, inNoServer)
	if err == nil {
		_, err = r.archive.Clean(ctx, time.Now().AddDate(0, 0, -r.o.KeepDays), Filter{}, false)
	}
	if err != nil && ctx.Err() == nil {
		r.o.Log.Warn("old session logs are not removed", zap.Error(err))
	}
}

// Warnings says why nothing is logged, if that is so.
func (r *Recorder) Warnings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		return nil
	}
	return []string{fmt.Sprintf("sessions are not logged in %s, and it is tried again: %v", r.archive.dir, r.fault)}
}

// failed and worked tell, once, that logging fails, and that it works again.
func (r *Recorder) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == nil {
		r.o.Log.Error("sessions are not logged, and it is tried again", zap.String("dir", r.archive.dir), zap.Error(err))
	}
	r.fault = err
}

func (r *Recorder) worked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault != nil {
		r.o.Log.Info("sessions are logged again", zap.String("dir", r.archive.dir))
		r.fault = nil
	}
}

// errSuperseded says that a later registration has the session, and has logged all of it.
var errSuperseded = errors.New("a later agent has the session")

// claim waits until nobody else writes to the log of a session. Until release nobody does.
func (r *Recorder) claim(ctx context.Context, id int64, registration uint64) error {
	for {
		r.mu.Lock()
		busy, ok := r.writing[id]
		superseded := r.newest[id] > registration
		if !ok && !superseded {
			r.writing[id], r.newest[id] = make(chan struct{}), registration
		}
		r.mu.Unlock()
		if superseded {
			return errSuperseded
		}
		if !ok {
			return nil
		}
		select {
		case <-busy: // its agent was removed: it is about to end
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release ends a claim. It does nothing for 0.
func (r *Recorder) release(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mine, ok := r.writing[id]; ok {
		delete(r.writing, id)
		close(mine)
	}
}
