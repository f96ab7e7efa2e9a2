package agents

import (
	"context"
	"fmt"
	"sync"
	"time"

	"nexus.internal/protocol"
)

// tick is how often an agent that waits for another gives a sign of life.
const tick = 10 * time.Second

// through tells the parent that the agent works through another one for as long
// as wait takes. wait returns the other's answer.
func (c caller) through(ctx context.Context, agent, task string, wait func() (string, error)) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	told := context.WithoutCancel(ctx) // what has begun is ended, also when it is cancelled
	id, begin := c.last.Add(1), time.Now()
	c.parent.Send(told, protocol.SubagentStart{SubagentID: id, AgentName: agent, TaskPreview: preview(task)})
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				c.parent.Send(told, protocol.SubagentUpdate{
					SubagentID: id, AgentName: agent,
					Status: fmt.Sprintf("works since %.0f s", time.Since(begin).Seconds()),
				})
			case <-done:
				return
			}
		}
	})
	end := protocol.SubagentDone{SubagentID: id, AgentName: agent, ResultPreview: "failed"}
	defer func() { // of a panic too
		close(done)
		ticking.Wait()
		end.DurationSecs = time.Since(begin).Seconds()
		c.parent.Send(told, end)
	}()
	answer, err := wait()
	switch {
	case ctx.Err() != nil:
		end.ResultPreview = "cancelled"
	case err != nil:
		end.ResultPreview = preview("failed: " + err.Error())
	default:
		end.ResultPreview = preview(answer)
	}
	return answer, err
}
