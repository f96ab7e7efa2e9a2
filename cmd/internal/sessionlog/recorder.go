package sessionlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
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
	Log        *zap.Logger
	// Events says to write events.jsonl, too.
	Events bool
	// KeepDays is how many days a log is kept after its last entry once its session is gone; 0 is for good.
	KeepDays int
}

// Recorder logs the sessions of all agents of a server. Its methods are safe for concurrent use.
type Recorder struct {
	o       Options
	archive *Archive

	mu      sync.Mutex              // guards what follows
	fault   error                   // why nothing is logged now; nil if all is well
	writing map[int64]chan struct{} // by session: closed once its follower has ended
}

// NewRecorder returns a Recorder that writes to an archive that Create returned. What an earlier
// server was logging when it was killed is marked as orphaned, or as saved.
func NewRecorder(a *Archive, o Options) (*Recorder, error) {
	r := &Recorder{o: o, archive: a, writing: map[int64]chan struct{}{}}
	if err := a.settle(context.Background(), o.Home, o.Sessions, true); err != nil {
		return nil, fmt.Errorf("open the session logs: %w", err)
	}
	return r, nil
}

// Run logs until ctx ends, and then what the agents did until they ended: the caller ends ctx
// once they have. Then all goroutines have ended.
func (r *Recorder) Run(ctx context.Context) {
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var followers sync.WaitGroup
	clean := time.NewTicker(cleanEvery)
	defer clean.Stop()
	r.clean(ctx)
	for after, running := uint64(0), true; running; {
		registered, changed := r.o.Supervisor.Registrations(after)
		for _, reg := range registered {
			after = reg.Number
			if reg.Agent != nil {
				f := &follower{r: r, reg: reg, log: r.o.Log.With(zap.String("agent", reg.ID))}
				followers.Go(func() { f.run(following) })
			} else if api.IsTemp(reg.ID) { // what a named one did is logged when its session is used again
				r.o.Log.Warn("a temporary agent was gone before it was logged", zap.String("agent", reg.ID))
			}
		}
		select {
		case <-changed:
		case <-clean.C:
			r.clean(ctx)
		case <-ctx.Done():
			running = false
		}
	}
	patience := time.AfterFunc(endPatience, stop)
	followers.Wait()
	patience.Stop()
	stop()
	if err := r.archive.settle(context.WithoutCancel(ctx), r.o.Home, r.o.Sessions, true); err != nil {
		r.failed(err)
	}
}

// clean removes the logs that are older than they are kept.
func (r *Recorder) clean(ctx context.Context) {
	if r.o.KeepDays == 0 {
		return
	}
	err := r.archive.settle(ctx, r.o.Home, r.o.Sessions, false)
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

// claim waits until nobody else writes to the log of a session. Until release nobody does.
func (r *Recorder) claim(ctx context.Context, id int64) error {
	for {
		r.mu.Lock()
		busy, ok := r.writing[id]
		if !ok {
			r.writing[id] = make(chan struct{})
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
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
