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

func (sleeper) Scope(jsontext.Value) (tool.Scope, error) {
	return tool.Scope{Action: protocol.ActionNone, Summary: "wait"}, nil
}

// input is what a call asks for.
type input struct {
	Seconds float64 `json:"seconds"`
}

func parse(raw jsontext.Value) (in input, err error) {
	if err := strict.Unmarshal(raw, &in, strict.RejectUnknown); err != nil {
		return in, err
	}
	if in.Seconds < 0 || in.Seconds > maxSeconds {
		return in, fmt.Errorf("member \"seconds\" must be between 0 and %d, is %v", maxSeconds, in.Seconds)
	}
	return in, nil
}

func (in input) duration() time.Duration { return time.Duration(in.Seconds * float64(time.Second)) }

func (sleeper) TimeLimit(raw jsontext.Value) time.Duration {
	in, err := parse(raw)
	if err != nil {
		return 0
	}
	return in.duration()
}

func (sleeper) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	input, err := parse(c.Input)
	if err != nil {
		return tool.Result{}, err
	}
	timer := time.NewTimer(input.duration())
	defer timer.Stop()
	select {
	case <-timer.C:
		return tool.Result{Text: fmt.Sprintf("slept %v s", input.Seconds)}, nil
	case <-ctx.Done():
		return tool.Result{}, ctx.Err()
	}
}
