package plan

import (
	"context"
	"fmt"
	"time"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
)

// note adds a notification for all who follow the run.
func (r *run) note(method string, params any) {
	line, err := jsonrpc.AppendNotification(nil, method, params)
	if err != nil {
		panic(fmt.Sprintf("bridge: encode %s: %v", method, err)) // of strings and numbers
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, notification{method, line})
	close(r.more)
	r.more = make(chan struct{})
}

// since are the notifications from the nth on, and what is closed when there
// are more.
func (r *run) since(n int) ([]notification, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notes[n:], r.more
}

// follow passes on all notifications of a run until it has ended. Errors are
// rpc.ErrSlowClient and that of ctx.
func follow(ctx context.Context, out *rpc.Stream, run *run) error {
	beat := time.NewTicker(out.Heartbeat)
	defer beat.Stop()
	for sent, last := 0, false; ; {
		notes, more := run.since(sent)
		var batch []byte
		for _, n := range notes {
			batch = rpc.AppendEvent(batch, "", n.method, n.line)
		}
		if batch != nil {
			if err := out.Send(batch); err != nil {
				return err
			}
		}
		sent += len(notes)
		if last {
			return nil
		}
		select {
		case <-more:
		case <-run.done: // all has been noted by now
			last = true
		case <-beat.C:
			if err := out.Beat(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
