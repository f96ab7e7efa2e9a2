package supervisor_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// pings counts the pings of a child, which answers those that it may.
type pings struct {
	seen   atomic.Int64
	answer func(n int64) bool
}

func (p *pings) command(c *supervisortest.Child, cmd protocol.Command) bool {
	if _, ok := cmd.(protocol.Ping); !ok {
		return false
	}
	return !p.answer(p.seen.Add(1))
}

func yes(int64) bool { return true }
func no(int64) bool  { return false }

// A child that has nothing to say is asked whether it lives, every 15 s in a turn
// and every 60 s idle, and lives on when it answers.
func TestPing(t *testing.T) {
	for want, busy := range map[int64]bool{10: false, 40: true} {
		t.Run(fmt.Sprintf("busy %v", busy), func(t *testing.T) {
			p := pings{answer: yes}
			run(t, always(supervisortest.Play{Command: p.command, Prompt: supervisortest.UntilAborted}), func(h *house) {
				a := h.start("alice")
				if busy {
					h.prompt(a, "1", "")
				}
				time.Sleep(10*time.Minute + time.Second) // in the bubble's time
				if n := p.seen.Load(); n != want {
					h.Errorf("%d pings in ten minutes, want %d", n, want)
				}
				if info := a.Info(); info.Incarnation != 1 || (info.State == supervisor.Busy) != busy {
					h.Errorf("info %+v", info)
				}
			})
		})
	}
}

// A child that leaves a ping without an answer is lost, whatever it was doing.
func TestPingUnanswered(t *testing.T) {
	for after, busy := range map[time.Duration]bool{75 * time.Second: false, 30 * time.Second: true} {
		t.Run(fmt.Sprintf("busy %v", busy), func(t *testing.T) {
			p := pings{answer: no}
			mute := supervisortest.Play{Command: p.command, Prompt: supervisortest.Hang}
			run(t, series(mute, supervisortest.Play{}), func(h *house) {
				a := h.start("alice")
				var turn *supervisor.Turn
				if busy {
					turn = h.prompt(a, "1", "")
				}
				start := time.Now()
				time.Sleep(after - 1) // in the bubble's time
				synctest.Wait()
				if info := a.Info(); info.PID == 0 || info.Incarnation != 1 {
					h.Errorf("lost too early: %+v", info)
				}
				time.Sleep(time.Nanosecond) // in the bubble's time
				synctest.Wait()
				info := h.state(a, supervisor.Backoff)
				if want := "child crashed: ping not answered in 15s (incarnation 1, signal: killed)"; info.LastError != want {
					h.Errorf("last error %q, want %q", info.LastError, want)
				}
				if busy {
					r := h.outcome(turn, supervisor.Crashed)
					if e, ok := errors.AsType[*supervisor.CrashError](r.Err); !ok || e.Reason != supervisor.ReasonPing || r.Text != "working" {
						h.Errorf("result %+v", r)
					}
				}
				time.Sleep(time.Second) // in the bubble's time
				if info := h.state(a, supervisor.Ready); info.LastRestart != supervisor.ReasonPing || since(start) > after+2*time.Second {
					h.Errorf("info %+v", info)
				}
				if stats := h.sup.Stats(); stats.Crashes[supervisor.ReasonPing] != 1 || stats.Restarts[supervisor.ReasonPing] != 1 {
					h.Errorf("stats %+v", stats)
				}
			})
		})
	}
}

// What a child says by itself is no answer: one that floods its stdout and reads
// nothing is found out like one that is silent.
func TestPingInAFlood(t *testing.T) {
	p := pings{answer: no}
	flood := func(c *supervisortest.Child, _ protocol.Prompt) {
		for c.Sleep(time.Second) {
			c.Say("drip")
		}
	}
	run(t, always(supervisortest.Play{Command: p.command, Prompt: flood}), func(h *house) {
		start := time.Now()
		r := h.outcome(h.prompt(h.start("alice"), "1", ""), supervisor.Crashed)
		if since(start) != 30*time.Second || !strings.Contains(r.Err.Error(), "ping not answered") || !strings.HasPrefix(r.Text, "dripdrip") {
			h.Errorf("%v after %v, having said %d bytes", r.Err, since(start), len(r.Text))
		}
	})
}

// A child that answers other things is not pinged, and an answer to another
// command, or an error, is as good as one to the ping.
func TestPingIsNotNeeded(t *testing.T) {
	t.Run("while it answers", func(t *testing.T) {
		p := pings{answer: no}
		run(t, always(supervisortest.Play{Command: p.command}), func(h *house) {
			a := h.start("alice")
			for i := range 20 {
				time.Sleep(14 * time.Second) // in the bubble's time
				if i%2 == 0 {
					h.outcome(h.prompt(a, fmt.Sprint(i), "x"), supervisor.Completed)
				} else if _, err := supervisor.Do(h.Context(), a, protocol.GetState{}); err != nil {
					h.Fatal(err)
				}
			}
			if n := p.seen.Load(); n != 0 || a.Info().Incarnation != 1 {
				h.Errorf("%d pings, info %+v", n, a.Info())
			}
		})
	})
	t.Run("once it answers something else", func(t *testing.T) {
		p := pings{answer: no}
		run(t, always(supervisortest.Play{Command: p.command}), func(h *house) {
			a := h.start("alice")
			for range 20 {
				time.Sleep(74 * time.Second) // in the bubble's time
				if _, err := supervisor.Do(h.Context(), a, protocol.GetState{}); err != nil {
					h.Fatal(err)
				}
			}
			if n := p.seen.Load(); n < 19 || a.Info().Incarnation != 1 {
				h.Errorf("%d pings, info %+v", n, a.Info())
			}
		})
	})
	t.Run("of a child that knows no ping", func(t *testing.T) {
		refuses := func(c *supervisortest.Child, cmd protocol.Command) bool {
			if _, ok := cmd.(protocol.Ping); !ok {
				return false
			}
			c.Emit(protocol.Error{ID: new(cmd.Ident()), Message: "unknown command"})
			return true
		}
		run(t, always(supervisortest.Play{Command: refuses}), func(h *house) {
			a := h.start("alice")
			time.Sleep(time.Hour) // in the bubble's time
			h.state(a, supervisor.Ready)
			if events := h.events(a); a.Info().Incarnation != 1 || len(events) != 2 {
				h.Errorf("info %+v, events %v", a.Info(), events)
			}
		})
	})
}

// An agent that is being stopped, has stopped or waits for a restart is pinged
// no more; the next incarnation is pinged anew.
func TestPingEndsWithTheIncarnation(t *testing.T) {
	p := pings{answer: yes}
	run(t, always(supervisortest.Play{Command: p.command}), func(h *house) {
		a := h.start("alice")
		time.Sleep(61 * time.Second) // in the bubble's time
		if err := a.Shutdown(h.Context()); err != nil {
			h.Fatal(err)
		}
		time.Sleep(time.Hour) // in the bubble's time
		if n := p.seen.Load(); n != 1 {
			h.Errorf("%d pings, want 1", n)
		}
		h.outcome(h.prompt(a, "1", "x"), supervisor.Completed)
		time.Sleep(61 * time.Second) // in the bubble's time
		if n := p.seen.Load(); n != 2 {
			h.Errorf("%d pings, want 2", n)
		}
	})
}

// A ping has its turn behind what is being written: the write's own deadline
// tells of a child that does not read.
func TestPingOfADeafChild(t *testing.T) {
	run(t, series(supervisortest.Play{Deaf: true}, supervisortest.Play{}), func(h *house) {
		a := h.start("alice")
		time.Sleep(70*time.Second + time.Millisecond) // in the bubble's time: 60 s, then 10 s of the write
		synctest.Wait()
		if info := h.state(a, supervisor.Backoff); !strings.Contains(info.LastError, "stdin not read in 10s") {
			h.Errorf("last error %q", info.LastError)
		}
	})
}

// When the server itself stood still, an answer may wait to be read: the child
// gets its time again, once for each time.
func TestPingAfterOurOwnSleep(t *testing.T) {
	p := pings{answer: no}
	run(t, always(supervisortest.Play{Command: p.command}), func(h *house) {
		a := h.start("alice")
		time.Sleep(61 * time.Second) // in the bubble's time
		supervisor.Oversleep(a, 2*time.Second)
		time.Sleep(15 * time.Second) // in the bubble's time
		if info := h.state(a, supervisor.Ready); info.Incarnation != 1 {
			h.Errorf("lost at once: %s", info.LastError)
		}
		time.Sleep(15 * time.Second) // in the bubble's time
		if info := h.state(a, supervisor.Ready); info.Incarnation != 2 || info.LastRestart != supervisor.ReasonPing {
			h.Errorf("info %+v, want that it was lost in the end", info)
		}
	})
}

// heavy are records on a disk that takes its time.
type heavy struct{ supervisor.NoRecords }

func (heavy) End(supervisor.Result) { time.Sleep(time.Minute) } // in the bubble's time

// While the server waits for its own disk it does not read, and no child is to
// blame for that.
func TestPingWhileTheDiskIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{T: t, launcher: &supervisortest.Launcher{}}
		h.sup = supervisor.New(supervisor.Options{
			Launcher: h.launcher, StopTimeout: time.Hour,
			Store: openRecords(func(string) (supervisor.Records, error) { return heavy{}, nil }),
		})
		defer h.drain()
		a := h.start("alice")
		start := time.Now()
		h.outcome(h.prompt(a, "1", "x"), supervisor.Completed)
		time.Sleep(time.Minute) // in the bubble's time
		if info := h.state(a, supervisor.Ready); info.Incarnation != 1 || since(start) != 2*time.Minute {
			h.Errorf("after %v: %+v", since(start), info)
		}
	})
}
