// Package sleep is the tool that waits.
package sleep

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// maxSeconds is the longest wait that can be asked for (SPEC §4.4).
const maxSeconds = 3600

var spec = tool.Spec{
	Name:        "sleep",
	Description: "Wait for a number of seconds.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{"seconds":{"type":"number","minimum":0,"maximum":3600,` +
		`"description":"how long to wait"}},"required":["seconds"],"additionalProperties":false}`),
}

// New returns the tool sleep {seconds}. It waits for 0 to 3600 seconds,
// fractions included, or until its context ends.
func New() tool.Tool { return sleeper{} }

type sleeper struct{}

func (sleeper) Spec() tool.Spec { return spec }

// Scope implements [tool.Scoped].
func (sleeper) Scope(jsontext.Value) (tool.Scope, error) {
	return tool.Scope{Action: protocol.ActionNone, Summary: "wait"}, nil
}

func (sleeper) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	var input struct {
		Seconds float64 `json:"seconds"`
	}
	if err := strict.Unmarshal(c.Input, &input, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	if input.Seconds < 0 || input.Seconds > maxSeconds {
		return tool.Result{}, fmt.Errorf("member \"seconds\" must be between 0 and %d, is %v", maxSeconds, input.Seconds)
	}
	timer := time.NewTimer(time.Duration(input.Seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return tool.Result{Text: fmt.Sprintf("slept %v s", input.Seconds)}, nil
	case <-ctx.Done():
		return tool.Result{}, ctx.Err()
	}
}
