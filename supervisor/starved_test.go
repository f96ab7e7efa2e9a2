package supervisor_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// shortage is a plan whose restarts the system refuses with err for a while after
// the first crash.
func shortage(err error, lasts time.Duration) func(supervisor.Spec, int) supervisortest.Play {
	var began time.Time
	return func(_ supervisor.Spec, n int) supervisortest.Play {
		switch {
		case n == 1:
			return supervisortest.Play{Prompt: crash}
		case n == 2:
			began = time.Now()
		}
		if time.Since(began) < lasts {
			refused := fmt.Errorf("open the model's socket: %w", os.NewSyscallError("socket", err))
			return supervisortest.Play{Refuse: &supervisor.StartError{Err: refused}}
		}
		return supervisortest.Play{}
	}
}

// A restart that the server lacks something for is no crash of the agent's: it is
// tried for as long as it takes. What waits is told after a while.
func TestStarvedRestart(t *testing.T) {
	for _, err := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			run(t, shortage(err, 5*time.Minute), func(h *house) {
				a := h.start("alice")
				h.outcome(h.prompt(a, "1", ""), supervisor.Crashed)
				start := time.Now()
				wait := func(id string, most time.Duration) {
					h.Helper()
					begin := time.Now()
					r := h.outcome(h.prompt(a, id, "x"), supervisor.Erred)
					_, ok := errors.AsType[*supervisor.StartError](r.Err)
					if took := since(begin); !ok || !errors.Is(r.Err, err) || took > most {
						h.Errorf("prompt %s: %v after %v, want a StartError within %v", id, r.Err, took, most)
					}
				}
				wait("2", 20*time.Second)
				if d := since(start); d < 10*time.Second {
					h.Errorf("what waits is told after %v already", d)
				}
				wait("3", 36*time.Second)
				if _, err := supervisor.Do(h.Context(), a, protocol.GetState{}); err == nil {
					h.Error("another command is answered")
				}
				info := h.state(a, supervisor.Backoff)
				if info.Incarnation < 8 || !strings.Contains(info.LastError, err.Error()) {
					h.Errorf("info %+v", info)
				}
				time.Sleep(5*time.Minute - since(start)) // in the bubble's time
				begin := time.Now()
				h.outcome(h.prompt(a, "4", "x"), supervisor.Completed)
				if d := since(begin); d > 36*time.Second {
					h.Errorf("back %v after the shortage", d)
				}
				stats := h.sup.Stats()
				if len(stats.Crashes) != 1 || stats.Restarts[supervisor.ReasonStart] != 1 {
					h.Errorf("stats %+v", stats)
				}
			})
		})
	}
}

// A shortage that is soon over costs those that wait only time, and the agent none
// of its crashes.
func TestShortShortage(t *testing.T) {
	run(t, shortage(syscall.EMFILE, 6*time.Second), func(h *house) {
		a := h.start("alice")
		crashed, waiting := h.prompt(a, "1", ""), h.prompt(a, "2", "x")
		h.outcome(crashed, supervisor.Crashed)
		h.outcome(waiting, supervisor.Completed)
		for range 4 {
			h.launcher.Child("alice").Crash(supervisor.Exit{Code: 1})
			synctest.Wait()
			h.state(a, supervisor.Backoff)
			h.outcome(h.prompt(a, "", "x"), supervisor.Completed)
		}
	})
}

// An agent that was stopped, and that the server lacks something for when it is
// asked again, has not crashed, and comes back.
func TestStarvedWhenAskedAgain(t *testing.T) {
	plan := func(_ supervisor.Spec, n int) supervisortest.Play {
		if n == 2 {
			return supervisortest.Play{Refuse: &supervisor.StartError{Err: syscall.EAGAIN}}
		}
		return supervisortest.Play{}
	}
	run(t, plan, func(h *house) {
		a := h.start("alice")
		if err := a.Shutdown(h.Context()); err != nil {
			h.Fatal(err)
		}
		h.outcome(h.prompt(a, "1", "x"), supervisor.Completed)
		if info := h.state(a, supervisor.Ready); info.Incarnation != 3 || info.LastRestart != supervisor.ReasonStart {
			h.Errorf("info %+v", info)
		}
	})
}
