package supervisor_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// slots is how many restarts are launched at once.
func slots() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// fleet starts n agents and ends all their processes at once.
func (h *house) fleet(n int) (agents []*supervisor.Agent) {
	for i := range n {
		agents = append(agents, h.start(fmt.Sprintf("a%02d", i)))
	}
	for _, a := range agents {
		h.launcher.Child(a.ID()).Crash(supervisor.Exit{Code: 1})
	}
	time.Sleep(100 * time.Millisecond) // in the bubble's time: their backoff
	synctest.Wait()
	return agents
}

func (h *house) inState(want supervisor.State) int {
	h.Helper()
	return h.sup.Stats().Agents[want]
}

// Agents that crash together are restarted a few at a time, with as long a pause
// after each; all of them are, and those that are started because somebody asks do not wait for them.
func TestRestartsAreFewAtOnce(t *testing.T) {
	plan := func(_ supervisor.Spec, n int) supervisortest.Play {
		if n == 1 {
			return supervisortest.Play{}
		}
		return supervisortest.Play{ReadyAfter: 100 * time.Millisecond}
	}
	run(t, plan, func(h *house) {
		const rounds = 5
		h.fleet(rounds * slots())
		for round := range rounds {
			if got := h.inState(supervisor.Ready); got != round*slots() {
				h.Errorf("%d are back after %d rounds, want %d", got, round, round*slots())
			}
			start := time.Now()
			h.start(fmt.Sprint("new", round))
			if since(start) != 0 {
				h.Errorf("a new agent waited %v", since(start))
			}
			if err := h.sup.Remove(h.Context(), fmt.Sprint("new", round)); err != nil {
				h.Error(err)
			}
			time.Sleep(100 * time.Millisecond) // in the bubble's time
			synctest.Wait()
			if got := h.inState(supervisor.Ready); got != (round+1)*slots() {
				h.Errorf("%d are back after round %d, want %d", got, round, (round+1)*slots())
			}
			time.Sleep(100 * time.Millisecond) // in the bubble's time: for others, as long as the round took
			synctest.Wait()
		}
		if got := h.inState(supervisor.Ready); got != rounds*slots() {
			h.Errorf("%d are back, want all", got)
		}
	})
}

// hangs is a plan of restarts that do not become ready, but for one agent.
func hangs(s supervisor.Spec, n int) supervisortest.Play {
	return supervisortest.Play{NeverReady: n > 1 && s.ID != "sound"}
}

// Restarts that hang do not keep others from theirs for long, and one that waits
// for its turn can be stopped.
func TestRestartsThatHang(t *testing.T) {
	run(t, hangs, func(h *house) {
		sound, waits := h.start("sound"), h.start("waits")
		h.fleet(slots()) // they take all turns, now
		h.launcher.Child("waits").Crash(supervisor.Exit{Code: 1})
		h.launcher.Child("sound").Crash(supervisor.Exit{Code: 1})
		time.Sleep(200 * time.Millisecond) // in the bubble's time: longer than their backoff
		h.state(waits, supervisor.Starting)
		h.state(sound, supervisor.Starting)
		start := time.Now()
		if err := waits.Shutdown(h.Context()); err != nil || since(start) != 0 {
			h.Errorf("Shutdown of one that waits = %v after %v", err, since(start))
		}
		time.Sleep(50 * time.Millisecond) // in the bubble's time
		synctest.Wait()
		h.state(sound, supervisor.Ready)
		if n := len(h.launcher.Launches("waits")); n != 1 {
			h.Errorf("launched %d times, though it was stopped before its turn", n)
		}
	})
}

// The wait for its turn is not counted against a start.
func TestRestartsHaveTheirTime(t *testing.T) {
	run(t, hangs, func(h *house) {
		h.fleet(2 * slots())
		failed := func(want int) {
			h.Helper()
			synctest.Wait()
			if got := h.sup.Stats().Crashes[supervisor.ReasonStart]; got != uint64(want) {
				h.Errorf("%d restarts have failed, want %d", got, want)
			}
		}
		time.Sleep(10*time.Second - 1) // in the bubble's time
		failed(0)
		time.Sleep(time.Nanosecond) // in the bubble's time
		failed(slots())
		time.Sleep(250*time.Millisecond - 1) // in the bubble's time
		failed(slots())
		time.Sleep(time.Nanosecond) // in the bubble's time
		failed(2 * slots())
	})
}

// An agent whose restarts all hang has failed after some, however long each takes; what
// waits is told. Once it is ready again, they count no more.
func TestRestartsThatAllHang(t *testing.T) {
	well := 0 // the incarnation that is ready
	run(t, func(_ supervisor.Spec, n int) supervisortest.Play {
		return supervisortest.Play{NeverReady: n > 1 && n != well}
	}, func(h *house) {
		a := h.start("alice")
		for round := range 2 {
			before := h.state(a, supervisor.Ready).Incarnation
			well = int(before) + 4
			h.launcher.Child("alice").Crash(supervisor.Exit{Code: 1})
			synctest.Wait()
			h.outcome(h.prompt(a, "", "x"), supervisor.Completed)
			if got := h.state(a, supervisor.Ready).Incarnation; got != before+4 {
				h.Errorf("round %d: incarnation %d, want %d", round, got, before+4)
			}
		}
		well = 0
		before := a.Info().Incarnation
		h.launcher.Child("alice").Crash(supervisor.Exit{Code: 1})
		synctest.Wait()
		r := h.outcome(h.prompt(a, "last", "x"), supervisor.Crashed)
		if r.Err == nil || !strings.Contains(r.Err.Error(), "not ready in 10s") {
			h.Errorf("the waiting prompt ended with %v", r.Err)
		}
		if info := h.state(a, supervisor.Failed); info.Incarnation != before+6 {
			h.Errorf("failed in incarnation %d, want the sixth after %d", info.Incarnation, before)
		}
	})
}
