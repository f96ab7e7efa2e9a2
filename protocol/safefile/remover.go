package safefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// maxDiscarded bounds the directories that wait for their removal.
const maxDiscarded = 256

// RemoveBriefly is [RemoveAll] for 2 s at most.
func RemoveBriefly(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	return RemoveAll(ctx, path)
}

// Remover removes directories in the background, one after the other: what a program left
// in one may be a million files. It is safe for concurrent use.
type Remover struct {
	failed func(error)
	ctx    context.Context //nolint:containedctx // of the goroutine, until Close
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu        sync.Mutex // guards all below
	discarded []string   // at most maxDiscarded, the next first
	removing  bool       // the goroutine runs
	closed    bool
}

// NewRemover returns a Remover, which Close ends. failed is told, by any goroutine, what
// cannot be removed.
func NewRemover(failed func(error)) *Remover {
	r := &Remover{failed: failed}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Discard gives the directory at path another name beside it, and removes it in the
// background. If 256 others wait for their removal, and after Close, Discard removes the
// directory itself, for 2 s at most.
func (r *Remover) Discard(path string) {
	if os.Remove(path) == nil { // it is empty, as a rule
		return
	}
	aside := path + ".discarded"
	switch err := os.Rename(path, aside); {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil: // there may be such a name, or, on a full disk, no room for one
		aside = path
	}
	if !r.enqueue(aside) {
		if err := RemoveBriefly(aside); err != nil {
			r.failed(err)
		}
	}
}

func (r *Remover) enqueue(path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.discarded) == maxDiscarded {
		return false
	}
	r.discarded = append(r.discarded, path)
	if !r.removing {
		r.removing = true
		r.work.Go(r.remove)
	}
	return true
}

// remove removes what was discarded, until nothing is left or Close ends that.
func (r *Remover) remove() {
	for {
		r.mu.Lock()
		if len(r.discarded) == 0 || r.ctx.Err() != nil {
			r.removing = false
			r.mu.Unlock()
			return
		}
		path := r.discarded[0]
		r.mu.Unlock()
		err := RemoveAll(r.ctx, path)
		if err != nil && r.ctx.Err() != nil {
			continue
		}
		if err != nil {
			r.failed(err)
		}
		r.mu.Lock()
		r.discarded = r.discarded[1:]
		r.mu.Unlock()
	}
}

// Close waits for the removal of what was discarded, for patience at most. The error names
// the first directory that stays.
func (r *Remover) Close(patience time.Duration) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	if patience > 0 {
		timer := time.AfterFunc(patience, r.stop)
		defer timer.Stop()
	} else {
		r.stop()
	}
	r.work.Wait()
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.discarded) == 0 {
		return nil
	}
	return fmt.Errorf("remove %s: not done after %v", r.discarded[0], patience)
}
