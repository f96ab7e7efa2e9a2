package supervisor_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// slow is a turn of one second that minds aborts.
func slow(c *supervisortest.Child, p protocol.Prompt) {
	c.Say(p.Message)
	c.Sleep(time.Second)
	c.Finish(p, p.Message)
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: slow}), func(h *house) {
		a := h.start("alice")
		start := time.Now()
		var turns []*supervisor.Turn
		for i := range 5 {
			turns = append(turns, h.prompt(a, fmt.Sprint(i), ""))
		}
		if info := h.state(a, supervisor.Busy); strings.Join(info.Waiting, " ") != "1 2 3 4" || info.Running != "0" {
			h.Errorf("queued %q, running %q", info.Waiting, info.Running)
		}
		for i, turn := range turns {
			h.outcome(turn, supervisor.Completed)
			if d := since(start); d != time.Duration(i+1)*time.Second {
				h.Errorf("turn %d ended after %v", i, d)
			}
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: slow}), func(h *house) {
		a := h.start("alice")
		h.prompt(a, "running", "")
		for i := range supervisor.DefaultQueueLimit {
			h.prompt(a, fmt.Sprint(i), "")
		}
		for _, when := range []supervisor.WhenBusy{supervisor.Queue, supervisor.Steer} {
			_, err := a.Prompt(h.Context(), protocol.Prompt{ID: "one more"}, supervisor.PromptOptions{WhenBusy: when})
			if !errors.Is(err, supervisor.ErrQueueFull) {
				h.Errorf("%s: %v, want ErrQueueFull", when, err)
			}
		}
		if stats := h.sup.Stats(); stats.Waiting != 64 || stats.Agents[supervisor.Busy] != 1 {
			h.Errorf("stats: %+v", stats)
		}
	})
}

// Those that have but a share of a queue leave a quarter of it to the owner, also in bytes; one of them has half of it.
func TestQueueLeavesRoomToTheOwner(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: slow}), func(h *house) {
		large := strings.Repeat("x", 1<<20)
		for _, text := range []string{"", large} {
			a := h.start("alice" + text[:min(1, len(text))])
			h.prompt(a, "running", "")
			most := supervisor.DefaultQueueLimit
			if text != "" {
				most = 8 // MiB
			}
			accepted := func(limited string) (n int) {
				for {
					_, err := a.Prompt(h.Context(), protocol.Prompt{Message: text}, supervisor.PromptOptions{Limited: limited})
					if errors.Is(err, supervisor.ErrQueueFull) {
						return n
					}
					if err != nil {
						h.Fatal(err)
					}
					n++
				}
			}
			got := []int{accepted("key a"), accepted("key b"), accepted("key c"), accepted("")}
			if want := []int{most / 2, most / 4, 0, most / 4}; !slices.Equal(got, want) {
				h.Errorf("with %d bytes: %v were accepted, want %v", len(text), got, want)
			}
		}
	})
}

// What waits is bounded by its size, too: for one agent, and for all of them but
// those that can begin at once.
func TestQueueIsBoundedInSize(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: slow}), func(h *house) {
		large := strings.Repeat("x", 4<<20)
		refused := func(a *supervisor.Agent, what string) {
			h.Helper()
			_, err := a.Prompt(h.Context(), protocol.Prompt{Message: "one more"}, supervisor.PromptOptions{})
			if !errors.Is(err, supervisor.ErrQueueFull) || !strings.Contains(err.Error(), what) {
				h.Errorf("one more: %v, want that it is refused for what waits for %s", err, what)
			}
		}
		idle := h.start("idle")
		var agents []*supervisor.Agent
		for i := range 32 {
			a := h.start(fmt.Sprint(i))
			agents = append(agents, a)
			h.prompt(a, "runs", "")
			h.prompt(a, "waits", large)
			if i == 0 {
				_, err := a.Prompt(h.Context(), protocol.Prompt{Message: large + "x"}, supervisor.PromptOptions{})
				if !errors.Is(err, supervisor.ErrQueueFull) {
					h.Errorf("more than 8 MiB: %v", err)
				}
			}
			h.prompt(a, "waits, too", large)
		}
		refused(agents[0], "8388608 bytes of prompts wait for the agent")
		h.prompt(idle, "runs", "at once")
		refused(idle, "all agents")
		if cancelled, err := agents[0].Abort(h.Context(), "waits"); !cancelled || err != nil {
			h.Fatalf("Abort: %v, %v", cancelled, err)
		}
		h.prompt(idle, "waits", "where there is room")
		for _, a := range agents[1:] {
			if err := h.sup.Remove(h.Context(), a.ID()); err != nil {
				h.Fatal(err)
			}
		}
		h.outcome(h.prompt(agents[0], "last", ""), supervisor.Completed)
		if held := h.sup.Held(); held != 0 {
			h.Errorf("%d bytes are held for nothing", held)
		}
	})
}

func TestCancelOfWaiting(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: slow}), func(h *house) {
		a := h.start("alice")
		first, second, third := h.prompt(a, "1", ""), h.prompt(a, "2", ""), h.prompt(a, "3", "")
		start := time.Now()
		cancelled, err := a.Abort(h.Context(), "2")
		if !cancelled || err != nil || since(start) != 0 {
			h.Errorf("Abort = %v, %v after %v", cancelled, err, since(start))
		}
		r := h.outcome(second, supervisor.Cancelled)
		if !errors.Is(r.Err, supervisor.ErrAborted) || r.Incarnation != 0 {
			h.Errorf("result %+v", r)
		}
		h.outcome(first, supervisor.Completed)
		h.outcome(third, supervisor.Completed)
		for id, want := range map[string]bool{"1": false, "2": true, "unknown": false, "": false} {
			if cancelled, err := a.Abort(h.Context(), id); cancelled != want || err != nil {
				h.Errorf("Abort(%q) of what has ended = %v, %v, want %v", id, cancelled, err, want)
			}
		}
	})
}

func TestCancelOfRunning(t *testing.T) {
	hold := make(chan chan struct{}, 1) // what the turn to come waits for once it is aborted
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		both := <-hold
		c.Say("working")
		<-c.Aborted()
		<-both
		c.Finish(p, "working")
	}}
	run(t, always(play), func(h *house) {
		a := h.start("alice")
		for _, id := range []string{"turn", ""} { // by its id, and as the one that runs
			both := make(chan struct{})
			hold <- both
			turn := h.prompt(a, cmp.Or(id, "the second"), "")
			synctest.Wait()
			ended := make(chan error, 2)
			for range 2 { // two who cancel are both answered
				go func() {
					cancelled, err := a.Abort(h.Context(), id)
					if err == nil && !cancelled {
						err = errors.New("not cancelled")
					}
					ended <- err
				}()
			}
			synctest.Wait() // until both wait
			close(both)
			if err := errors.Join(<-ended, <-ended); err != nil {
				h.Errorf("Abort: %v", err)
			}
			r := h.outcome(turn, supervisor.Cancelled)
			if !errors.Is(r.Err, supervisor.ErrAborted) || r.Text != "working" || r.StopReason != protocol.StopAborted || r.Usage.InputTokens != 1 {
				h.Errorf("result %+v", r)
			}
		}
		h.state(a, supervisor.Ready)
	})
}

// A cancel that arrives while the child says its last words does not turn a
// completed turn into a cancelled one.
func TestCancelThatComesTooLate(t *testing.T) {
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Say("all")
		<-c.Aborted()
		c.Emit(protocol.AgentEnd{StopReason: protocol.StopCompleted, TurnID: p.ID})
		c.Respond(p, map[string]bool{"ok": true})
	}}
	run(t, always(play), func(h *house) {
		a := h.start("alice")
		turn := h.prompt(a, "1", "")
		if cancelled, err := a.Abort(h.Context(), "1"); cancelled || err != nil {
			h.Errorf("Abort = %v, %v, want that it cancelled nothing", cancelled, err)
		}
		h.outcome(turn, supervisor.Completed)
	})
}

// A child that does not honour a cancel is killed after the grace, and both
// who sent and who cancelled hear of the same crash.
func TestCancelNotHonoured(t *testing.T) {
	run(t, series(supervisortest.Play{Prompt: supervisortest.Hang}, supervisortest.Play{}), func(h *house) {
		a := h.start("alice")
		turn, next := h.prompt(a, "1", ""), h.prompt(a, "2", "next")
		synctest.Wait()
		start := time.Now()
		cancelled, err := a.Abort(h.Context(), "1")
		if d := since(start); d != 5*time.Second {
			h.Errorf("told after %v, want 5s", d)
		}
		r := h.outcome(turn, supervisor.Crashed)
		crash, ok := errors.AsType[*supervisor.CrashError](err)
		if cancelled || !ok || !errors.Is(r.Err, crash) || crash.Cause != "cancel not honoured in 5s" || crash.Exit.Signal != "killed" {
			h.Errorf("canceller: %v; sender: %v", err, r.Err)
		}
		if r := h.outcome(next, supervisor.Completed); r.Incarnation != 2 {
			h.Errorf("the next turn ran in incarnation %d", r.Incarnation)
		}
	})
}

func TestCancelGivenUpByItsCaller(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: supervisortest.Hang}), func(h *house) {
		a := h.start("alice")
		turn := h.prompt(a, "1", "")
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		if cancelled, err := a.Abort(ctx, "1"); cancelled || !errors.Is(err, context.DeadlineExceeded) {
			h.Errorf("Abort = %v, %v", cancelled, err)
		}
		if _, err := turn.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			h.Errorf("Wait = %v", err)
		}
		h.outcome(turn, supervisor.Crashed) // the cancel goes on without them
	})
}

func TestReject(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: slow}), func(h *house) {
		a := h.start("alice")
		reject := supervisor.PromptOptions{WhenBusy: supervisor.Reject}
		turn := h.prompt(a, "1", "", reject)
		if _, err := a.Prompt(h.Context(), protocol.Prompt{ID: "2"}, reject); !errors.Is(err, supervisor.ErrBusy) {
			h.Errorf("Prompt = %v, want ErrBusy", err)
		}
		h.outcome(turn, supervisor.Completed)
		h.outcome(h.prompt(a, "2", "", reject), supervisor.Completed) // a refused id is free
	})
}

func TestSteer(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: slow}), func(h *house) {
		a := h.start("alice")
		running, waiting := h.prompt(a, "1", ""), h.prompt(a, "2", "")
		synctest.Wait()
		start := time.Now()
		steered := h.prompt(a, "3", "", supervisor.PromptOptions{WhenBusy: supervisor.Steer})
		r := h.outcome(running, supervisor.Cancelled)
		if !errors.Is(r.Err, supervisor.ErrAborted) || since(start) != 0 {
			h.Errorf("the steered turn: %v after %v", r.Err, since(start))
		}
		h.outcome(steered, supervisor.Completed)
		h.outcome(waiting, supervisor.Completed)
		if d := since(start); d != 2*time.Second {
			h.Errorf("all done after %v, want 2s", d)
		}
		var ran []string
		for _, e := range h.events(a) {
			if e.Type == "turn_start" {
				ran = append(ran, gjson.GetBytes(e.Data, "turn_id").Str)
			}
		}
		if !slices.Equal(ran, []string{"1", "3", "2"}) {
			h.Errorf("turns ran in the order %v, want what steers before what waits", ran)
		}
	})
}

func TestTimeout(t *testing.T) {
	second := supervisor.PromptOptions{Timeout: time.Second}
	for _, c := range []struct {
		name  string
		play  func(*supervisortest.Child, protocol.Prompt)
		want  supervisor.Outcome
		err   error
		after time.Duration
	}{
		{"cancelled in time", supervisortest.UntilAborted, supervisor.TimedOut, supervisor.ErrTurnTimeout, time.Second},
		{"not even cancelled", supervisortest.Hang, supervisor.Crashed, nil, 6 * time.Second},
		{"done before", supervisortest.Echo, supervisor.Completed, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, always(supervisortest.Play{Prompt: c.play}), func(h *house) {
				a := h.start("alice")
				start := time.Now()
				r := h.outcome(h.prompt(a, "1", "", second), c.want)
				if c.err != nil && !errors.Is(r.Err, c.err) || since(start) != c.after {
					h.Errorf("%v after %v, want %v after %v", r.Err, since(start), c.err, c.after)
				}
			})
		})
	}
	t.Run("waiting is not counted", func(t *testing.T) {
		run(t, always(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
			c.Sleep(900 * time.Millisecond)
			supervisortest.Echo(c, p)
		}}), func(h *house) {
			a := h.start("alice")
			first, second := h.prompt(a, "1", "", second), h.prompt(a, "2", "", second)
			h.outcome(first, supervisor.Completed)
			h.outcome(second, supervisor.Completed)
		})
	})
}

// Many senders and cancellers at once: each prompt has one outcome, the
// number of outcomes is that of the prompts, and the agent ends up idle.
func TestCancelRaces(t *testing.T) {
	plan := always(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Say("x")
		c.Sleep(time.Duration(len(p.ID)) * time.Millisecond)
		c.Finish(p, "x")
	}})
	run(t, plan, func(h *house) {
		a := h.start("alice")
		outcomes := make(chan supervisor.Outcome, 50)
		for i := range 50 {
			turn := h.prompt(a, fmt.Sprint(i), "")
			go func() {
				r, _ := turn.Wait(context.Background())
				outcomes <- r.Outcome
			}()
			if i%2 == 0 {
				go func() {
					time.Sleep(time.Duration(i%7) * time.Millisecond) // in the bubble's time
					a.Abort(context.Background(), turn.ID())
				}()
			}
		}
		count := map[supervisor.Outcome]uint64{}
		for range 50 {
			count[<-outcomes]++
		}
		stats := h.sup.Stats()
		if count[supervisor.Completed] < 25 || count[supervisor.Cancelled] == 0 || stats.Prompts != 50 ||
			stats.Outcomes[supervisor.Completed] != count[supervisor.Completed] ||
			stats.Outcomes[supervisor.Cancelled] != count[supervisor.Cancelled] {
			h.Errorf("outcomes %v, stats %+v", count, stats)
		}
		ends := slices.DeleteFunc(h.events(a), func(e supervisor.Event) bool { return e.Type != "turn_end" })
		if len(ends) != 50 {
			h.Errorf("%d turn_end events for 50 turns", len(ends))
		}
		h.state(a, supervisor.Ready)
	})
}
