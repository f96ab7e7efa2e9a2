package plan

import (
	"context"
	"time"

	"nexus.internal/bridge/rpc"
)

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
