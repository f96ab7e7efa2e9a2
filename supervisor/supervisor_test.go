package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestStart(t *testing.T) {
	run(t, nil, func(h *house) {
		h.start("bob")
		a, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice", Labels: supervisor.Labels{Parent: "v"}})
		if err != nil {
			h.Fatal(err)
		}
		if _, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice"}); !errors.Is(err, supervisor.ErrExists) {
			h.Errorf("a second alice: %v, want ErrExists", err)
		}
		if found, err := h.sup.Agent("alice"); found != a || err != nil {
			h.Errorf("Agent = %v, %v", found, err)
		}
		if _, err := h.sup.Agent("carol"); !errors.Is(err, supervisor.ErrNotFound) {
			h.Errorf("Agent(carol) = %v", err)
		}
		infos := h.sup.Agents()
		if len(infos) != 2 || infos[0].ID != "alice" || infos[1].ID != "bob" || infos[0].Labels.Parent != "v" ||
			infos[0].PID != 1001 || infos[0].Incarnation != 1 || !infos[0].CreatedAt.Equal(time.Now()) {
			h.Errorf("Agents = %+v", infos)
		}
	})
}

// A start that fails leaves nothing, whoever asked for something meanwhile
// hears of it, and the id is free again.
func TestStartFails(t *testing.T) {
	refusal := errors.New("no such program")
	for _, c := range []struct {
		name  string
		play  supervisortest.Play
		after time.Duration
		check func(err error) bool
	}{
		{
			"refused",
			supervisortest.Play{Refuse: refusal, ReadyAfter: time.Second},
			time.Second,
			func(err error) bool { return errors.Is(err, refusal) },
		},
		{"never ready", supervisortest.Play{NeverReady: true}, 10 * time.Second, func(err error) bool {
			e, ok := errors.AsType[*supervisor.StartError](err)
			return ok && e.Exit != nil && e.Err.Error() == "not ready in 10s"
		}},
		{"wrong version", supervisortest.Play{Version: 7, ReadyAfter: time.Second}, time.Second, func(err error) bool {
			e, ok := errors.AsType[*protocol.VersionError](err)
			return ok && e.Got == 7
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			broken := true
			plan := func(supervisor.Spec, int) supervisortest.Play {
				if broken {
					return c.play
				}
				return supervisortest.Play{}
			}
			run(t, plan, func(h *house) {
				begin := time.Now()
				failed := make(chan error, 1)
				go func() {
					_, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice"})
					failed <- err
				}()
				synctest.Wait()
				a, err := h.sup.Agent("alice")
				if err != nil {
					h.Fatal(err)
				}
				h.state(a, supervisor.Starting)
				early := h.prompt(a, "1", "")
				if err := <-failed; !c.check(err) || since(begin) != c.after {
					h.Errorf("Start = %v after %v", err, since(begin))
				}
				if r := h.outcome(early, supervisor.Erred); !c.check(r.Err) {
					h.Errorf("the early prompt: %v", r.Err)
				}
				if _, err := a.Prompt(h.Context(), protocol.Prompt{}, supervisor.PromptOptions{}); !errors.Is(err, supervisor.ErrNotFound) {
					h.Errorf("Prompt = %v, want ErrNotFound", err)
				}
				if left := h.sup.Agents(); len(left) != 0 {
					h.Errorf("left behind: %v", left)
				}
				broken = false
				h.start("alice")
			})
		})
	}
}

func TestStartGivenUp(t *testing.T) {
	run(t, always(supervisortest.Play{NeverReady: true}), func(h *house) {
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		if _, err := h.sup.Start(ctx, supervisor.Spec{ID: "alice"}); !errors.Is(err, context.DeadlineExceeded) {
			h.Errorf("Start = %v", err)
		}
		if left := h.sup.Agents(); len(left) != 0 {
			h.Errorf("left behind: %v", left)
		}
	})
}

func TestRemove(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: supervisortest.UntilAborted}), func(h *house) {
		a := h.start("alice")
		running, waiting := h.prompt(a, "1", ""), h.prompt(a, "2", "")
		synctest.Wait()
		gone := h.launcher.Child("alice").Gone()
		if err := h.sup.Remove(h.Context(), "alice"); err != nil {
			h.Fatal(err)
		}
		select {
		case <-gone:
		default:
			h.Error("Remove returned before the child was gone")
		}
		h.outcome(running, supervisor.Cancelled)
		h.outcome(waiting, supervisor.Cancelled)
		if err := h.sup.Remove(h.Context(), "alice"); !errors.Is(err, supervisor.ErrNotFound) {
			h.Errorf("Remove again = %v", err)
		}
		if _, err := supervisor.Do(h.Context(), a, protocol.GetState{}); !errors.Is(err, supervisor.ErrNotFound) {
			h.Errorf("Do = %v, want ErrNotFound", err)
		}
		h.start("alice")
	})
}

// The removal goes on without its caller, and two who remove are both told.
func TestRemoveGivenUp(t *testing.T) {
	run(t, always(supervisortest.Play{StopAfter: time.Hour}), func(h *house) {
		h.start("alice")
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := h.sup.Remove(ctx, "alice"); !errors.Is(err, context.DeadlineExceeded) {
			h.Errorf("Remove = %v", err)
		}
		if err := h.sup.Remove(h.Context(), "alice"); err != nil || since(start) != 5*time.Second {
			h.Errorf("Remove = %v after %v", err, since(start))
		}
	})
}

// At the end all stop at once, not one after the other, whatever they do.
func TestDrain(t *testing.T) {
	plan := func(s supervisor.Spec, n int) supervisortest.Play {
		switch s.ID {
		case "wedged":
			return supervisortest.Play{Prompt: supervisortest.Hang}
		case "crashing":
			return supervisortest.Play{Prompt: crash}
		case "starting":
			return supervisortest.Play{NeverReady: true}
		default:
			return supervisortest.Play{Prompt: supervisortest.UntilAborted, StopAfter: time.Second}
		}
	}
	run(t, plan, func(h *house) {
		var turns []*supervisor.Turn
		for _, id := range append(slices.Collect(ids(20)), "wedged") {
			a := h.start(id)
			turns = append(turns, h.prompt(a, "1", ""), h.prompt(a, "2", ""))
		}
		crashing := h.start("crashing")
		h.outcome(h.prompt(crashing, "1", ""), supervisor.Crashed)
		turns = append(turns, h.prompt(crashing, "2", "")) // in backoff
		starting := make(chan error, 1)
		go func() {
			_, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "starting"})
			starting <- err
		}()
		synctest.Wait()

		ctx, cancel := context.WithCancel(h.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.sup.Run(ctx) }()
		synctest.Wait()
		begin := time.Now()
		cancel()
		synctest.Wait()
		if _, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "late"}); !errors.Is(err, supervisor.ErrDraining) {
			h.Errorf("Start = %v, want ErrDraining", err)
		}
		if _, err := crashing.Prompt(h.Context(), protocol.Prompt{}, supervisor.PromptOptions{}); !errors.Is(err, supervisor.ErrDraining) {
			h.Errorf("Prompt = %v, want ErrDraining", err)
		}
		if err := <-ended; err != nil || since(begin) != 2*time.Second { // the wedged one's
			h.Errorf("Run = %v after %v", err, since(begin))
		}
		for _, turn := range turns {
			h.outcome(turn, supervisor.Cancelled)
		}
		if err := <-starting; !errors.Is(err, supervisor.ErrDraining) {
			h.Errorf("Start under way = %v, want ErrDraining", err)
		}
	})
}

func ids(n int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range n {
			if !yield(fmt.Sprintf("agent%02d", i)) {
				return
			}
		}
	}
}

// Run names who would not stop in time.
func TestUnstopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		launcher := &supervisortest.Launcher{Plan: func(s supervisor.Spec, n int) supervisortest.Play {
			if s.ID == "quick" {
				return supervisortest.Play{}
			}
			return supervisortest.Play{StopAfter: time.Hour}
		}}
		s := supervisor.New(supervisor.Options{
			Launcher: launcher, StopTimeout: time.Second,
		})
		for _, id := range []string{"b", "quick", "a"} {
			if _, err := s.Start(t.Context(), supervisor.Spec{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e, ok := errors.AsType[*supervisor.UnstoppedError](s.Run(ctx))
		if !ok || !slices.Equal(e.IDs, []string{"a", "b"}) || e.After != time.Second {
			t.Errorf("Run = %+v", e)
		}
		for _, id := range []string{"a", "b"} { // they do stop in the end
			if err := s.Remove(t.Context(), id); err != nil && !errors.Is(err, supervisor.ErrNotFound) {
				t.Errorf("Remove(%s) = %v", id, err)
			}
		}
	})
}

func TestSessionUpdate(t *testing.T) {
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Emit(protocol.SessionUpdate{SessionID: "s", Model: "m", TotalTokens: 7})
		c.Finish(p, "")
	}}
	run(t, always(play), func(h *house) {
		a := h.start("alice")
		if a.Info().Update != nil {
			h.Error("an update before the first")
		}
		h.outcome(h.prompt(a, "1", ""), supervisor.Completed)
		if u := a.Info().Update; u == nil || u.TotalTokens != 7 || u.Model != "m" {
			h.Errorf("update = %+v", u)
		}
	})
}

func Example() {
	launcher := &supervisortest.Launcher{}
	s := supervisor.New(supervisor.Options{Launcher: launcher})
	ctx, cancel := context.WithCancel(context.Background())
	agent, err := s.Start(ctx, supervisor.Spec{ID: "alice"})
	if err != nil {
		panic(err)
	}
	turn, err := agent.Prompt(ctx, protocol.Prompt{Message: "hello"}, supervisor.PromptOptions{})
	if err != nil {
		panic(err)
	}
	result, err := turn.Wait(ctx)
	fmt.Println(result.Outcome, result.Text, err)
	cancel()
	fmt.Println(s.Run(ctx))
	// Output:
	// completed hello <nil>
	// <nil>
}

// What is removed only if it does nothing takes no prompt from then on, and loses
// none: a prompt is either before the removal, which is refused, or after it.
func TestRemoveIdle(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: supervisortest.UntilAborted}), func(h *house) {
		a := h.start("a")
		h.prompt(a, "1", "x")
		if err := h.sup.RemoveIdle(h.Context(), "a"); !errors.Is(err, supervisor.ErrBusy) {
			t.Errorf("while it runs: %v", err)
		}
		if _, err := a.Abort(h.Context(), "1"); err != nil {
			t.Error(err)
		}
		if err := h.sup.RemoveIdle(h.Context(), "a"); err != nil {
			t.Errorf("idle: %v", err)
		}
		if _, err := a.Prompt(h.Context(), protocol.Prompt{Message: "y"}, supervisor.PromptOptions{}); !errors.Is(err, supervisor.ErrNotFound) {
			t.Errorf("a prompt afterwards: %v", err)
		}
		if err := h.sup.RemoveIdle(h.Context(), "a"); !errors.Is(err, supervisor.ErrNotFound) {
			t.Errorf("again: %v", err)
		}
	})
}

// To those that follow an agent it has moved if another machine has it, or is to have it, and is gone if it was removed.
func TestMoved(t *testing.T) {
	for name, end := range map[string]func(*supervisor.Supervisor, context.Context, string) error{
		"removed": (*supervisor.Supervisor).Remove, "removed idle": (*supervisor.Supervisor).RemoveIdle,
		"moved": (*supervisor.Supervisor).MoveIdle, "taken": (*supervisor.Supervisor).Evict,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, always(supervisortest.Play{Prompt: supervisortest.UntilAborted}), func(h *house) {
				a := h.start("a")
				sub, err := a.Subscribe(0)
				if err != nil {
					t.Fatal(err)
				}
				defer sub.Close()
				if err := end(h.sup, h.Context(), "a"); err != nil {
					t.Fatal(err)
				}
				for err == nil {
					_, err = sub.Next(h.Context())
				}
				want := name == "moved" || name == "taken"
				registered, _ := h.sup.Registrations(0)
				if !errors.Is(err, io.EOF) || sub.Moved() != want || registered[0].Moved != want {
					t.Errorf("%v, moved %t and %t", err, sub.Moved(), registered[0].Moved)
				}
			})
		})
	}
}
