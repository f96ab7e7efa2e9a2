package child

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

const (
	// maxQueue is how many follow-ups may wait; a further one is refused.
	maxQueue = 16
	// maxAborts is how many aborts of one turn are answered after it; a
	// further one is refused.
	maxAborts = 64
)

// errAborted is the cause of a turn's end by abort.
var errAborted = errors.New("aborted")

// job is a turn or a compaction.
type job struct {
	command protocol.Command
	ctx     context.Context
	cancel  context.CancelCauseFunc
	aborts  []protocol.Abort // answered after the job; guarded by turnQueue.mu
}

// turnQueue holds the job that runs and those that wait for it. The reader accepts and
// aborts jobs; the worker takes them by next and finish. It is safe for concurrent use.
type turnQueue struct {
	ctx  context.Context // of all jobs
	out  *emitter
	wake chan struct{} // tells next that active or closed changed; holds one

	mu      sync.Mutex // guards all below
	active  *job       // what runs, or is about to
	waiting []*job     // what runs after it; at most maxQueue
	closed  bool       // nothing more is accepted
}

func newTurnQueue(ctx context.Context, out *emitter) *turnQueue {
	return &turnQueue{ctx: ctx, out: out, wake: make(chan struct{}, 1)}
}

// accept queues a command for the worker, or says why not.
func (q *turnQueue) accept(c protocol.Command) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errShutdown
	}
	if q.active != nil {
		if err := q.mayWait(c); err != nil {
			return err
		}
	}
	j := &job{command: c}
	j.ctx, j.cancel = context.WithCancelCause(q.ctx)
	if q.active != nil {
		q.waiting = append(q.waiting, j)
		return nil
	}
	q.active = j
	q.signal()
	return nil
}

// mayWait says why a command may not wait behind the job that runs. mu is held.
func (q *turnQueue) mayWait(c protocol.Command) error {
	if err := inFlight(c, append([]*job{q.active}, q.waiting...)); err != nil {
		return err
	}
	switch c.(type) {
	case protocol.FollowUp:
		if len(q.waiting) >= maxQueue {
			return fmt.Errorf("%d follow-ups wait already", maxQueue)
		}
		return nil
	case protocol.Prompt:
		// What compacts is no prompt: the first that comes waits for it.
		if _, compacting := q.active.command.(protocol.Compact); compacting && len(q.waiting) == 0 {
			return nil
		}
		return errors.New("another prompt is in flight; wait for its response, abort it, or send a follow_up")
	default:
		return &busyError{c, q.active.command}
	}
}

// busyError says that a command is not accepted while the job of another one runs.
type busyError struct{ command, running protocol.Command }

func (e *busyError) Error() string {
	what := "turn"
	if _, compacting := e.running.(protocol.Compact); compacting {
		what = "compaction"
	}
	return fmt.Sprintf("%s is refused while a %s runs", e.command.Name(), what)
}

// inFlight says which of the jobs has the id of the command; nil if none has.
func inFlight(c protocol.Command, jobs []*job) error {
	i := slices.IndexFunc(jobs, func(j *job) bool { return j.command.Ident() == c.Ident() })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("id %q belongs to a %s in flight", textcut.Head(c.Ident(), 64), jobs[i].command.Name())
}

// checkID reports why the id of a command cannot have a response of its own: it
// belongs to a job that has yet to get one. An abort may bear the id of the job that
// runs: its response is that one.
func (q *turnQueue) checkID(c protocol.Command) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	jobs := q.waiting
	switch c.(type) {
	case protocol.Prompt, protocol.FollowUp, protocol.Compact: // accept says so
		return nil
	case protocol.Abort:
	default:
		if q.active != nil {
			jobs = append([]*job{q.active}, jobs...)
		}
	}
	if c.Ident() == "" {
		return nil
	}
	return inFlight(c, jobs)
}

// abort ends the running job; its answer follows that of the job, or is that of
// the job if both bear one id: an id gets one response. When idle it is answered
// at once.
func (q *turnQueue) abort(c protocol.Abort) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.active
	switch {
	case j == nil:
		q.out.post(protocol.SuccessResponse(c, protocol.TurnDone{}))
		return
	case c.ID == j.command.Ident():
	case len(j.aborts) >= maxAborts:
		q.out.post(commandError(c.ID, fmt.Errorf("%d aborts wait for this turn already", maxAborts)))
		return
	default:
		j.aborts = append(j.aborts, c)
	}
	j.cancel(errAborted)
}

// next waits for the job to run; nil if there will be no more.
func (q *turnQueue) next() *job {
	for {
		q.mu.Lock()
		j, closed := q.active, q.closed
		q.mu.Unlock()
		if j != nil || closed {
			return j
		}
		<-q.wake
	}
}

// finish makes room for the next job, and returns the aborts that are to be answered.
// It comes before the frames that close the turn are written: a parent that has read
// agent_end may send a prompt at once, without the response.
func (q *turnQueue) finish(j *job) []protocol.Abort {
	j.cancel(nil)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.active = nil
	if len(q.waiting) > 0 {
		q.active = q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
	return j.aborts
}

// status is the command that runs, nil if none does, and how many wait.
func (q *turnQueue) status() (active protocol.Command, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.active != nil {
		active = q.active.command
	}
	return active, len(q.waiting)
}

// close lets what was accepted finish and accepts nothing more.
func (q *turnQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// drop accepts nothing more and refuses the jobs that wait.
func (q *turnQueue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.waiting { // under the lock: the worker has not ended, so that posts are taken
		q.out.post(commandError(j.command.Ident(), errShutdown))
	}
	q.waiting, q.closed = nil, true
	q.signal()
}

func (q *turnQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
