package child_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"nexus.internal/child/provider"
)

// stubborn is a provider that takes its time to end.
type stubborn struct{ puppet }

func (stubborn) Stream(ctx context.Context, _ provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		if yield(provider.Text{Text: "partial"}, nil) {
			<-ctx.Done()
			<-time.After(time.Second)
			yield(nil, ctx.Err())
		}
	}
}

// Of the aborts of one turn 64 are answered, after it; those beyond are refused
// at once (SPEC §3.4).
func TestAbortsOfATurnAreBounded(t *testing.T) {
	o := options()
	o.Start.Provider = stubborn{}
	script := []string{hang, text}
	for i := range 64 {
		script = append(script, fmt.Sprintf(`> {"type":"abort","id":"a%d"}`, i))
	}
	script = append(script,
		`> {"type":"abort","id":"a64"}`, `< {"type":"error","id":"a64","message":"64 aborts wait for this turn already"}`,
		`> {"type":"abort","id":"1"}`, // by the turn's own id: its response is the turn's
		`> {"type":"ping","id":"p"}`, `< {"type":"response","id":"p"}`,
		aborted, cancelled,
	)
	for i := range 64 {
		script = append(script, fmt.Sprintf(`< {"type":"response","id":"a%d","command":"abort","ok":true}`, i))
	}
	play(t, o, script)
}
