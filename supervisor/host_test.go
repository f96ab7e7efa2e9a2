package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// sends answers host calls of the method send {to, message}, as the façade does.
func sends(h *house) hostCall {
	return func(ctx context.Context, from supervisor.Caller, _ string, params jsontext.Value) (jsontext.Value, *protocol.HostError) {
		var p struct{ To, Message string }
		if err := json.Unmarshal(params, &p, json.MatchCaseInsensitiveNames(true)); err != nil {
			h.Errorf("params %s: %v", params, err)
		}
		a, err := h.sup.Agent(p.To)
		if err != nil {
			return nil, &protocol.HostError{Code: 1, Message: err.Error()}
		}
		r, err := a.Delegate(ctx, from, protocol.Prompt{Message: p.Message}, supervisor.PromptOptions{})
		if err != nil {
			return nil, &protocol.HostError{Code: 2, Message: err.Error()}
		}
		text, err := json.Marshal(r.Text)
		if err != nil {
			h.Error(err)
		}
		return text, nil
	}
}

func params(to, message string) string { return fmt.Sprintf(`{"to":%q,"message":%q}`, to, message) }

// relays plays a prompt "b: c: hello" as a send of "c: hello" to b, whose answer
// is said; the parts between | are sent side by side. Any other prompt is
// played by last.
func relays(last func(*supervisortest.Child, protocol.Prompt)) supervisortest.Play {
	return supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		if !strings.Contains(p.Message, ": ") {
			last(c, p)
			return
		}
		var all sync.WaitGroup
		parts := strings.Split(p.Message, " | ")
		answers := make([]string, len(parts))
		for i, part := range parts {
			to, message, _ := strings.Cut(part, ": ")
			all.Go(func() {
				r, ok := c.Host(p, "send", params(to, message))
				switch {
				case !ok:
					answers[i] = "cancelled"
				case r.Error != nil:
					answers[i] = r.Error.Message
				default:
					answers[i] = string(r.Result)
				}
			})
		}
		all.Wait()
		c.Say(strings.Join(answers, " | "))
		c.Finish(p, "")
	}}
}

func (h *house) says(turn *supervisor.Turn, want string) {
	h.Helper()
	if r := h.outcome(turn, supervisor.Completed); r.Text != want {
		h.Errorf("turn %s said %q, want %q", turn.ID(), r.Text, want)
	}
}

func TestHostCall(t *testing.T) {
	hosted(t, sends, always(relays(supervisortest.Echo)), func(h *house) {
		a, b := h.start("a"), h.start("b")
		h.says(h.prompt(a, "1", "b: hello"), `"hello"`)
		h.says(h.prompt(a, "2", "nobody: hello"), "agent not found")
		h.says(h.prompt(a, "3", "b: x | b: y | b: z"), `"x" | "y" | "z"`)
		var types []string
		for _, e := range h.events(a) {
			types = append(types, e.Type)
		}
		if !slices.Contains(types, "host_call") {
			t.Errorf("subscribers do not see the call: %v", types)
		}
		h.state(b, supervisor.Ready)
	})
}

// A turn may wait for another agent's turn for as long as that takes, over however many
// agents: nothing but the limits of the turns ends it, and no ping is missed.
func TestLongHostCall(t *testing.T) {
	long := func(c *supervisortest.Child, p protocol.Prompt) {
		if c.Sleep(20 * time.Hour) {
			supervisortest.Echo(c, p)
		}
	}
	hosted(t, sends, always(relays(long)), func(h *house) {
		a := h.start("a")
		h.start("b")
		h.start("c")
		h.says(h.prompt(a, "1", "b: c: hello"), `"\"hello\""`)
	})
}

// An agent whose parent does not take its calls gets an answer all the same.
func TestHostCallRefused(t *testing.T) {
	ask := func(turn func(c *supervisortest.Child, p protocol.Prompt)) supervisortest.Play {
		return supervisortest.Play{Prompt: turn}
	}
	one := func(c *supervisortest.Child, p protocol.Prompt) {
		r, _ := c.Host(p, "send", "{}")
		c.Say(r.Error.Message)
		c.Finish(p, "")
	}
	t.Run("nobody takes them", func(t *testing.T) {
		run(t, always(ask(one)), func(h *house) {
			h.says(h.prompt(h.start("a"), "1", "x"), "this agent may not ask for other agents")
		})
	})
	t.Run("this agent was not started with them", func(t *testing.T) {
		hosted(t, sends, always(ask(one)), func(h *house) {
			a, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "a"})
			if err != nil {
				t.Fatal(err)
			}
			h.says(h.prompt(a, "1", "x"), "this agent may not ask for other agents")
		})
	})
	t.Run("of a turn that does not run", func(t *testing.T) {
		hosted(t, sends, always(ask(func(c *supervisortest.Child, p protocol.Prompt) {
			r, _ := c.Host(protocol.Prompt{ID: "another"}, "send", "{}")
			c.Say(r.Error.Message)
			c.Finish(p, "")
		})), func(h *house) {
			h.says(h.prompt(h.start("a"), "1", "x"), "the turn that asks does not run")
		})
	})
	t.Run("too many", func(t *testing.T) {
		hosted(t, func(*house) hostCall {
			return func(ctx context.Context, _ supervisor.Caller, _ string, _ jsontext.Value) (jsontext.Value, *protocol.HostError) {
				<-ctx.Done()
				return nil, nil
			}
		}, always(ask(func(c *supervisortest.Child, p protocol.Prompt) {
			var waiting sync.WaitGroup
			for range supervisor.MaxHostCalls {
				waiting.Go(func() { c.Host(p, "x", "{}") })
			}
			synctest.Wait()
			r, _ := c.Host(p, "x", "{}")
			c.Say(r.Error.Message)
			c.Finish(p, "") // the end of the turn ends the calls
			<-c.Gone()
			waiting.Wait()
		})), func(h *house) {
			h.says(h.prompt(h.start("a"), "1", "x"), "64 calls are under way already")
		})
	})
}

// What was asked for ends with whoever asked: at once if it waits, by a cancel
// if it runs, however the end of the caller came about.
func TestCallerGone(t *testing.T) {
	for name, end := range map[string]func(h *house, a *supervisor.Agent){
		"cancelled": func(h *house, a *supervisor.Agent) { _, _ = a.Abort(h.Context(), "") },
		"crashed":   func(h *house, a *supervisor.Agent) { h.launcher.Child("a").Crash(supervisor.Exit{Code: 1}) },
		"shut down": func(h *house, a *supervisor.Agent) { _ = a.Shutdown(h.Context()) },
		"removed":   func(h *house, a *supervisor.Agent) { _ = h.sup.Remove(h.Context(), "a") },
		"out of time": func(h *house, a *supervisor.Agent) {
			time.Sleep(time.Hour) // in the bubble's time
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := func(s supervisor.Spec, n int) supervisortest.Play {
				if s.ID == "a" && n > 1 {
					return supervisortest.Play{}
				}
				return relays(supervisortest.UntilAborted)
			}
			hosted(t, sends, plan, func(h *house) {
				a, b, c := h.start("a"), h.start("b"), h.start("c")
				other := h.prompt(c, "other", "long")
				turn := h.prompt(a, "1", "b: work | c: wait", supervisor.PromptOptions{Timeout: time.Minute})
				synctest.Wait()
				h.state(b, supervisor.Busy)
				if info := h.state(c, supervisor.Busy); len(info.Waiting) != 1 {
					t.Fatalf("%d wait for c, want 1", len(info.Waiting))
				}
				end(h, a)
				<-turnEnded(h, turn)
				synctest.Wait()
				h.state(b, supervisor.Ready)
				if info := h.state(c, supervisor.Busy); len(info.Waiting) != 0 || info.Running != "other" {
					t.Errorf("c: %+v, want that it goes on with what somebody else asked", info)
				}
				if _, err := c.Abort(h.Context(), "other"); err != nil {
					t.Error(err)
				}
				h.outcome(other, supervisor.Cancelled)
			})
		})
	}
}

func turnEnded(h *house, turn *supervisor.Turn) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = turn.Wait(h.Context())
	}()
	return done
}

// A prompt that somebody else had asked for before is not cancelled with the
// one who joined it.
func TestDelegateJoins(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: supervisortest.UntilAborted}), func(h *house) {
		b := h.start("b")
		turn := h.prompt(b, "same", "x")
		ctx, cancel := context.WithCancel(h.Context())
		joined := make(chan error, 1)
		go func() {
			_, err := b.Delegate(ctx, supervisor.Caller{AgentID: "a"}, protocol.Prompt{ID: "same", Message: "x"}, supervisor.PromptOptions{})
			joined <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-joined; !errors.Is(err, context.Canceled) {
			t.Errorf("Delegate = %v", err)
		}
		synctest.Wait()
		if info := h.state(b, supervisor.Busy); info.Running != "same" {
			t.Errorf("b runs %q", info.Running)
		}
		if _, err := b.Abort(h.Context(), "same"); err != nil {
			t.Error(err)
		}
		h.outcome(turn, supervisor.Cancelled)
	})
}

// turnCheck tells which turn is checked, and has a verdict on it.
type turnCheck struct {
	id       string
	checks   chan<- string
	verdicts <-chan error
}

func (c turnCheck) CheckTurn(context.Context) error {
	c.checks <- c.id
	return <-c.verdicts
}

// A prompt that has to wait is checked before it begins, again if the process ends
// meanwhile; it does not run if it is refused, and the next one does. What begins at once
// is not checked.
func TestDelegateChecksWhatWaited(t *testing.T) {
	var finish chan struct{}
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		<-finish
		supervisortest.Echo(c, p)
	}}
	run(t, always(play), func(h *house) {
		finish = make(chan struct{}) // of the test's bubble
		b := h.start("b")
		refused := errors.New("it may not")
		checks, verdicts := make(chan string, 8), make(chan error)
		delegate := func(id string) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := b.Delegate(h.Context(), supervisor.Caller{AgentID: "a" + id}, protocol.Prompt{ID: id, Message: id}, supervisor.PromptOptions{
					Check: turnCheck{id, checks, verdicts},
				})
				done <- err
			}()
			synctest.Wait()
			return done
		}
		one, two, three := delegate("1"), delegate("2"), delegate("3")
		close(finish)
		if err := <-one; err != nil || <-checks != "2" {
			t.Fatalf("the first one: %v", err)
		}
		h.launcher.Child("b").Crash(supervisor.Exit{Code: 3})
		synctest.Wait()
		verdicts <- nil // of a process that is gone
		if again := <-checks; again != "2" {
			t.Errorf("checked %s, want 2 again", again)
		}
		verdicts <- refused
		if err := <-two; !errors.Is(err, refused) || <-checks != "3" {
			t.Errorf("the second one: %v", err)
		}
		verdicts <- nil
		if err := <-three; err != nil || len(checks) > 0 {
			t.Errorf("the third one: %v, and %d checks more", err, len(checks))
		}
	})
}

// A crash of the agent that works is what the caller is told, and an answer
// that fits no frame is said to be too large.
func TestHostCallFails(t *testing.T) {
	plan := func(s supervisor.Spec, _ int) supervisortest.Play {
		switch s.ID {
		case "crash":
			return supervisortest.Play{Prompt: crash}
		case "loud":
			return supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
				for range 11 {
					c.Say(strings.Repeat("x", 100_000))
				}
				c.Finish(p, "")
			}}
		}
		return relays(supervisortest.Echo)
	}
	hosted(t, sends, plan, func(h *house) {
		a := h.start("a")
		h.start("crash")
		h.start("loud")
		h.says(h.prompt(a, "1", "crash: x"), "child crashed: process ended (incarnation 1, exit status 3)")
		if r := h.outcome(h.prompt(a, "2", "loud: x"), supervisor.Completed); !strings.HasPrefix(r.Text, "the answer is too large") {
			t.Errorf("said %.100q", r.Text)
		}
	})
}

func TestCycles(t *testing.T) {
	hosted(t, sends, always(relays(supervisortest.Echo)), func(h *house) {
		agents := map[string]*supervisor.Agent{}
		for _, id := range []string{"a", "b", "c"} {
			agents[id] = h.start(id)
		}
		h.says(h.prompt(agents["a"], "1", "a: hello"), "would wait for itself: a → a")
		h.says(h.prompt(agents["a"], "2", "b: a: hello"), `"would wait for itself: b → a → b"`)
		h.says(h.prompt(agents["a"], "3", "b: c: a: hello"), `"\"would wait for itself: c → a → b → c\""`)
		h.says(h.prompt(agents["a"], "4", "b: c: hello"), `"\"hello\""`) // a chain is none
		h.says(h.prompt(agents["a"], "5", "b: hello | c: b: hello"), `"hello" | "\"hello\""`)
	})
}

// Two turns that nobody connects can wait for each other too: the second one is
// refused, and both end.
// Layers of agents that all wait for all of the next layer have more ways
// through them than anybody can walk.
func TestCyclesAmongMany(t *testing.T) {
	const layers, wide = 40, 5
	var w supervisor.Waits
	name := func(layer, i int) string { return fmt.Sprintf("a%d-%d", layer, i) }
	for layer := range layers {
		for i := range wide {
			for j := range wide {
				if err := w.Begin(name(layer, i), name(layer+1, j)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	cycle, ok := errors.AsType[*supervisor.CycleError](w.Begin(name(layers, 0), name(0, 0)))
	if !ok || len(cycle.Path) != layers+2 || cycle.Path[0] != name(layers, 0) || cycle.Path[layers+1] != name(layers, 0) {
		t.Errorf("got %v", cycle)
	}
}

func TestCycleOfTwoTurns(t *testing.T) {
	slow := func(c *supervisortest.Child, p protocol.Prompt) {
		c.Sleep(time.Second)
		supervisortest.Echo(c, p)
	}
	plan := func(supervisor.Spec, int) supervisortest.Play {
		play := relays(slow)
		relay := play.Prompt
		play.Prompt = func(c *supervisortest.Child, p protocol.Prompt) {
			if c.Spec().ID == "b" && strings.Contains(p.Message, ": ") {
				c.Sleep(time.Second) // so that a has asked before
			}
			relay(c, p)
		}
		return play
	}
	hosted(t, sends, plan, func(h *house) {
		a, b := h.start("a"), h.start("b")
		second := h.prompt(b, "2", "a: hello")
		first := h.prompt(a, "1", "b: hello")
		h.says(second, "would wait for itself: b → a → b")
		h.says(first, `"hello"`)
	})
}

// Whatever agents ask of each other, side by side and in any depth, all turns
// end.
func TestNoDeadlock(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(rt *rapid.T) {
		chain := rapid.Custom(func(rt *rapid.T) string {
			hops := rapid.SliceOfN(rapid.SampledFrom(names), 1, 4).Draw(rt, "hops")
			return strings.Join(hops, ": ") + ": hello"
		})
		prompts := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) [2]string {
			return [2]string{
				rapid.SampledFrom(names).Draw(rt, "agent"),
				strings.Join(rapid.SliceOfN(chain, 1, 3).Draw(rt, "calls"), " | "),
			}
		}), 1, 8).Draw(rt, "prompts")
		hosted(t, sends, always(relays(supervisortest.Echo)), func(h *house) {
			agents := map[string]*supervisor.Agent{}
			for _, id := range names {
				agents[id] = h.start(id)
			}
			var turns []*supervisor.Turn
			for i, p := range prompts {
				turns = append(turns, h.prompt(agents[p[0]], fmt.Sprint(i), p[1]))
			}
			for _, turn := range turns { // a deadlock ends the bubble
				h.outcome(turn, supervisor.Completed)
			}
			for _, a := range agents {
				if info := h.state(a, supervisor.Ready); len(info.Waiting) != 0 {
					t.Errorf("%d wait for %s", len(info.Waiting), info.ID)
				}
			}
		})
	})
}

// A call that the child gives up, as a tool does that ran out of time, ends
// what was asked for, and the turn goes on.
func TestHostCancel(t *testing.T) {
	plan := func(s supervisor.Spec, _ int) supervisortest.Play {
		if s.ID == "b" {
			return supervisortest.Play{Prompt: supervisortest.UntilAborted}
		}
		return supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
			c.Emit(protocol.HostCall{CallID: "h1", TurnID: p.ID, Method: "send", Params: jsontext.Value(params("b", "work"))})
			c.Sleep(time.Second)
			c.Emit(protocol.HostCancel{CallID: "h1"})
			c.Sleep(time.Second)
			c.Finish(p, "")
		}}
	}
	hosted(t, sends, plan, func(h *house) {
		a, b := h.start("a"), h.start("b")
		turn := h.prompt(a, "1", "x")
		time.Sleep(time.Second / 2) // in the bubble's time
		h.state(b, supervisor.Busy)
		time.Sleep(time.Second) // in the bubble's time
		h.state(b, supervisor.Ready)
		h.state(a, supervisor.Busy)
		h.outcome(turn, supervisor.Completed)
	})
}
