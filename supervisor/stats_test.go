package supervisor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// What processes took is counted on when they are gone; a process in memory takes
// as many seconds as the number of its incarnation.
func TestUsage(t *testing.T) {
	run(t, nil, func(h *house) {
		usage := func(want supervisor.Usages) {
			h.Helper()
			if diff := cmp.Diff(want, h.sup.Usage()); diff != "" {
				h.Errorf("usage (-want +got):\n%s", diff)
			}
		}
		const mib = 1 << 20
		h.start("a")
		h.start("b")
		usage(supervisor.Usages{
			Agents: map[string]supervisor.Usage{"a": {CPU: time.Second, MemoryBytes: mib}, "b": {CPU: time.Second, MemoryBytes: mib}},
			CPU:    2 * time.Second,
		})
		h.launcher.Child("a").Crash(supervisor.Exit{Code: 1})
		time.Sleep(time.Second) // in the bubble's time: it is back
		synctest.Wait()
		usage(supervisor.Usages{
			Agents: map[string]supervisor.Usage{"a": {CPU: 2 * time.Second, MemoryBytes: mib}, "b": {CPU: time.Second, MemoryBytes: mib}},
			CPU:    4 * time.Second,
		})
		for _, id := range []string{"a", "b"} {
			if err := h.sup.Remove(h.Context(), id); err != nil {
				h.Fatal(err)
			}
		}
		usage(supervisor.Usages{Agents: map[string]supervisor.Usage{}, CPU: 4 * time.Second})
	})
}

// A prompt that is repeated, before its end or after, and one that is sent once
// more are counted apart from prompts.
func TestCountsRepeats(t *testing.T) {
	run(t, series(supervisortest.Play{Prompt: crash}, supervisortest.Play{}), func(h *house) {
		a := h.start("a")
		turn := h.prompt(a, "1", "x", retry)
		h.prompt(a, "1", "x", retry)
		h.outcome(turn, supervisor.Completed)
		h.prompt(a, "1", "x", retry)
		if _, err := a.Prompt(h.Context(), protocol.Prompt{ID: "1", Message: "y"}, retry); err == nil {
			h.Error("the same id was taken for another prompt")
		}
		st := h.sup.Stats()
		if st.Prompts != 1 || st.Repeats != 2 || st.Retries != 1 {
			h.Errorf("%d prompts, %d repeats, %d retries; want 1, 2, 1", st.Prompts, st.Repeats, st.Retries)
		}
	})
}

// stopwatch is a host that notes how long starts took.
type stopwatch []time.Duration

func (s *stopwatch) Launched(took time.Duration) { *s = append(*s, took) }
func (*stopwatch) HostCall(context.Context, supervisor.Caller, string, jsontext.Value) (jsontext.Value, *protocol.HostError) {
	return nil, nil
}

// Starts that succeed are told with the time that they took.
func TestLaunched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took stopwatch
		launcher := &supervisortest.Launcher{Plan: always(supervisortest.Play{ReadyAfter: 70 * time.Millisecond})}
		h := &house{T: t, launcher: launcher, sup: supervisor.New(supervisor.Options{
			Launchers: map[string]supervisor.Launcher{"": launcher}, Host: &took,
		})}
		defer h.drain()
		h.start("a")
		if diff := cmp.Diff(stopwatch{70 * time.Millisecond}, took); diff != "" {
			t.Errorf("starts (-want +got):\n%s", diff)
		}
	})
}
