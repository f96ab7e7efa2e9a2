package agents

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/parent"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
)

// New returns the tools of an agent with that parent: all of them, or none if
// the parent is nil or takes no host calls.
func New(parent *parent.Client) []tool.Tool {
	if parent == nil || !parent.HostCalls() {
		return nil
	}
	h := &host{parent: parent}
	return []tool.Tool{
		delegate[createInput]{h, createSpec, longestTurn},
		delegate[destroyInput]{h, destroySpec, 0},
		delegate[sendInput]{h, sendSpec, longestTurn},
		delegate[statusInput]{h, statusSpec, 0},
		delegate[cancelInput]{h, cancelSpec, 0},
		delegate[shutdownInput]{h, shutdownSpec, 0},
	}
}

// input is what a tool of this package is called with.
type input interface {
	// summary says in one line what would happen.
	summary() string
	run(ctx context.Context, c caller) (tool.Result, error)
}

// delegate is one tool, with the input In.
type delegate[In input] struct {
	host *host
	spec tool.Spec
	// limit is for calls that wait for the turn of another agent; 0 for others.
	limit time.Duration
}

// longestTurn bounds the wait for the turn of another agent, which ends with the call. The
// turn has limits of its own: timeout_s, and limits.turn_s.
const longestTurn = 24 * time.Hour

func (d delegate[In]) TimeLimit(jsontext.Value) time.Duration { return d.limit }

func (d delegate[In]) Spec() tool.Spec { return d.spec }

func (d delegate[In]) decode(raw jsontext.Value) (in In, err error) {
	return in, strict.Unmarshal(raw, &in, strict.RejectUnknown)
}

func (d delegate[In]) Scope(raw jsontext.Value) (tool.Scope, error) {
	in, err := d.decode(raw)
	if err != nil {
		return tool.Scope{}, err
	}
	return tool.Scope{Action: protocol.ActionDelegate, Summary: in.summary()}, nil
}

func (d delegate[In]) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	in, err := d.decode(c.Input)
	if err != nil {
		return tool.Result{}, err
	}
	return in.run(ctx, caller{d.host, c.TurnID})
}

// host is what the tools have in common.
type host struct {
	parent *parent.Client
	last   atomic.Uint64 // number of the last subagent
}

// caller asks the parent for one call of a tool.
type caller struct {
	*host
	turnID string
}

func (c caller) raw(ctx context.Context, method string, params any) (jsontext.Value, error) {
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode the parameters of %s: %w", method, err)
	}
	return c.parent.Call(ctx, c.turnID, method, encoded)
}

// ask is raw, and decodes what comes back into result.
func (c caller) ask(ctx context.Context, method string, params, result any) error {
	value, err := c.raw(ctx, method, params)
	if err != nil {
		return err
	}
	if err := strict.Unmarshal(value, result, strict.IgnoreUnknown); err != nil {
		return fmt.Errorf("read the answer to %s: %w", method, err)
	}
	return nil
}

// maxPreview bounds a preview, in bytes.
const maxPreview = 200

func preview(text string) string { return textcut.Line(text, maxPreview) }

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
