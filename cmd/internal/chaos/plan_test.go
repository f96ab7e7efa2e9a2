package chaos_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nexus.internal/cmd/internal/chaos"
)

// A plan follows from its seed, and has what a plan must: steps in order, the
// the control group left alone, the disk filled and the server killed.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, agents := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(2, 6).Draw(t, "agents")
		long := time.Duration(rapid.IntRange(10, 20).Draw(t, "seconds")) * time.Second
		p := chaos.NewPlan(seed, agents, long)
		if diff := cmp.Diff(p, chaos.NewPlan(seed, agents, long)); diff != "" {
			t.Errorf("the same seed gives another plan (-want +got):\n%s", diff)
		}
		if cmp.Equal(p.Talk, chaos.NewPlan(seed+1, agents, long).Talk) {
			t.Error("another seed gives the same plan")
		}
		byTime := func(a, b chaos.Step) int { return int(a.At - b.At) }
		did := map[chaos.Action]bool{}
		for _, steps := range append(slices.Clone(p.Talk), p.Attack) {
			if !slices.IsSortedFunc(steps, byTime) {
				t.Error("steps are not in the order of time")
			}
			for _, s := range steps {
				did[s.Do] = true
				if s.At < 0 || s.At >= long || s.Agent < 0 || s.Agent >= agents {
					t.Errorf("step %+v of %d agents in %v", s, agents, long)
				}
			}
		}
		for _, s := range p.Attack {
			if s.Agent < p.Control {
				t.Errorf("%+v attacks one of %d control agents", s, p.Control)
			}
		}
		if p.Control < 1 || p.Control >= agents || !did[chaos.FillDisk] || !did[chaos.KillServer] || !did[chaos.Echo] {
			t.Errorf("%d control agents of %d agents, who do %v", p.Control, agents, did)
		}
	})
}
