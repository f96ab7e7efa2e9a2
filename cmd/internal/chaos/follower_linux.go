package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// follower reads the events of one agent, connecting again where it left off, and allows what the agent asks for.
type follower struct {
	server  *server
	history *History
	agent   string

	sub  int
	last uint64
	stop context.CancelFunc
	done sync.WaitGroup
}

// follow begins where the follower was; leave ends it.
func (f *follower) follow() {
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.done.Go(func() {
		for ctx.Err() == nil {
			c, err := f.server.call(ctx)
			if err != nil {
				return
			}
			f.read(ctx, c)
			pause(ctx, 50*time.Millisecond)
		}
	})
}

func (f *follower) leave() {
	f.stop()
	f.done.Wait()
}

// read takes events until the connection ends.
func (f *follower) read(ctx context.Context, c *client.Client) {
	opened := false
	for event, err := range c.Events(ctx, f.agent, f.last) {
		if err != nil || event.Type == "end" {
			return
		}
		if !opened {
			opened = true
			f.sub++
			f.history.Add(Record{What: Subscribed, Agent: f.agent, Sub: f.sub, Seq: f.last})
		}
		r := Record{
			What: Seen, Agent: f.agent, Sub: f.sub, Seq: event.Seq, Type: event.Type, Sum: sum(event.Data),
		}
		switch event.Type {
		case "gap":
			r.From = gjson.GetBytes(event.Data, "from").Uint()
		case "turn_start", "turn_end":
			r.Request, r.Outcome = gjson.GetBytes(event.Data, "turn_id").Str, gjson.GetBytes(event.Data, "outcome").Str
		case "permission_request":
			// Whether it still waits is not ours to know.
			_ = c.Call(ctx, client.AgentPath(f.agent), "respond_permission", api.RespondPermissionParams{
				RequestID: gjson.GetBytes(event.Data, "request_id").Str, Decision: protocol.AllowOnce,
			}, nil)
		}
		f.last = event.Seq
		f.history.Add(r)
	}
}

// pause waits, and reports whether ctx still holds.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
