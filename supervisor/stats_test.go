package supervisor_test

import (
	"testing"
	"testing/synctest"
	"time"

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

// Starts that succeed are counted by the time that they took; one of a bound is within it.
func TestLaunchTimes(t *testing.T) {
	plan := func(s supervisor.Spec, _ int) supervisortest.Play {
		took, _ := time.ParseDuration(s.ID)
		return supervisortest.Play{ReadyAfter: took}
	}
	run(t, plan, func(h *house) {
		for _, took := range []string{"70ms", "100ms", "6s"} {
			if _, err := h.sup.Start(h.Context(), supervisor.Spec{ID: took}); err != nil {
				h.Fatal(err)
			}
		}
		want := supervisor.LaunchTimes{Count: 3, Sum: 6170 * time.Millisecond, Within: map[float64]uint64{
			.005: 0, .01: 0, .02: 0, .03: 0, .05: 0, .075: 1, .1: 2, .25: 2, .5: 2, 1: 2, 2.5: 2, 5: 2, 10: 3,
		}}
		if diff := cmp.Diff(want, h.sup.Stats().LaunchTimes); diff != "" {
			h.Errorf("starts (-want +got):\n%s", diff)
		}
	})
}
