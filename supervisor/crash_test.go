package supervisor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// crash is a turn that says a word and ends the process.
func crash(c *supervisortest.Child, p protocol.Prompt) {
	c.Say("half")
	c.Crash(supervisor.Exit{Code: 3, Stderr: "out of luck"})
}

func TestCrashInTurn(t *testing.T) {
	run(t, series(supervisortest.Play{Prompt: crash}, supervisortest.Play{}), func(h *house) {
		a, other := h.start("alice"), h.start("bob")
		bobs := h.prompt(other, "b", "x")
		start := time.Now()
		turn, waiting := h.prompt(a, "1", "one"), h.prompt(a, "2", "two")
		r := h.outcome(turn, supervisor.Crashed)
		e, ok := errors.AsType[*supervisor.CrashError](r.Err)
		if !ok || e.Cause != "process ended" || e.Exit.Code != 3 || e.Exit.Stderr != "out of luck" || e.Incarnation != 1 || r.Text != "half" {
			h.Errorf("result %+v", r)
		}
		if info := h.state(a, supervisor.Backoff); info.PID != 0 || !strings.Contains(info.LastError, "exit status 3") {
			h.Errorf("info %+v", info)
		}
		r = h.outcome(waiting, supervisor.Completed) // what waits outlives the crash
		if r.Incarnation != 2 || since(start) != 100*time.Millisecond {
			h.Errorf("ran in incarnation %d after %v", r.Incarnation, since(start))
		}
		if info := h.state(a, supervisor.Ready); info.Restarts != 1 || info.Incarnation != 2 {
			h.Errorf("info %+v", info)
		}
		if again := h.launcher.Launches("alice"); !slices.Equal(again, []bool{false, true}) {
			h.Errorf("launched with again = %v", again)
		}
		if r := h.outcome(h.prompt(a, "1", "one"), supervisor.Crashed); !r.Replayed {
			h.Error("a crashed turn was run again for a repeated id")
		}
		h.outcome(bobs, supervisor.Crashed) // bob plays the same: his own crash, not alice's
		synctest.Wait()                     // bob comes back at the same moment as alice
		if stats := h.sup.Stats(); stats.Crashes[supervisor.ReasonExit] != 2 || stats.Restarts[supervisor.ReasonExit] != 2 {
			h.Errorf("stats %+v", stats)
		}
	})
}

// A restart that finds no working directory says so, and tells of no process
// that never was.
func TestRestartWithoutAProcess(t *testing.T) {
	gone := &supervisor.StartError{Err: errors.New("start child: working directory: stat /gone: no such file or directory")}
	run(t, series(supervisortest.Play{Prompt: crash}, supervisortest.Play{Refuse: gone}), func(h *house) {
		a := h.start("alice")
		turn, waiting := h.prompt(a, "1", ""), h.prompt(a, "2", "")
		h.outcome(turn, supervisor.Crashed)
		r := h.outcome(waiting, supervisor.Crashed)
		if e, ok := errors.AsType[*supervisor.CrashError](r.Err); !ok || e.Exit != nil || e.Error() != "child not started: "+gone.Error()+" (incarnation 6)" {
			h.Errorf("what waited: %v", r.Err)
		}
		if info := h.state(a, supervisor.Failed); info.LastError != gone.Error() {
			h.Errorf("last error %q, want %q", info.LastError, gone)
		}
		_, err := a.Prompt(h.Context(), protocol.Prompt{ID: "3"}, supervisor.PromptOptions{})
		if !errors.Is(err, supervisor.ErrFailed) || !strings.HasSuffix(err.Error(), ": "+gone.Error()) {
			h.Errorf("Prompt = %v, want ErrFailed with the reason", err)
		}
	})
}

// An agent whose directory is gone is not started again and again: it fails, for the reason
// that helps.
func TestRestartWithoutItsDirectory(t *testing.T) {
	gone := &supervisor.StartError{Err: &supervisor.DirError{Dir: "/gone", Err: errors.New("its working directory /gone: no such file or directory")}}
	run(t, series(supervisortest.Play{}, supervisortest.Play{Refuse: gone}), func(h *house) {
		a := h.start("alice")
		if err := a.Shutdown(h.Context()); err != nil {
			h.Fatal(err)
		}
		start := time.Now()
		r := h.outcome(h.prompt(a, "1", ""), supervisor.Crashed)
		if e, ok := errors.AsType[*supervisor.DirError](r.Err); !ok || e.Dir != "/gone" || since(start) != 0 {
			h.Errorf("%v after %v", r.Err, since(start))
		}
		if info := h.state(a, supervisor.Failed); info.Incarnation != 2 {
			h.Errorf("incarnation %d", info.Incarnation)
		}
	})
}

// A process is started in the directory in which the one before worked last: that of
// its start may be gone.
func TestDirectoryOfARestart(t *testing.T) {
	var dirs []string
	plan := func(s supervisor.Spec, _ int) supervisortest.Play {
		dirs = append(dirs, s.Cwd)
		return supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
			c.Emit(protocol.SessionUpdate{SessionID: "s", Cwd: "/new"})
			supervisortest.Echo(c, p)
		}}
	}
	run(t, plan, func(h *house) {
		a, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice", Cwd: "/old"})
		if err != nil {
			h.Fatal(err)
		}
		for _, turn := range []string{"1", "2"} {
			h.outcome(h.prompt(a, turn, ""), supervisor.Completed)
			if err := a.Shutdown(h.Context()); err != nil {
				h.Fatal(err)
			}
		}
		if want := []string{"/old", "/new"}; !slices.Equal(dirs, want) {
			h.Errorf("started in %v, want %v", dirs, want)
		}
	})
}

// Events of a crash: what was said, the end of the turn, the states.
func TestCrashIsPublished(t *testing.T) {
	run(t, series(supervisortest.Play{Prompt: crash}, supervisortest.Play{}), func(h *house) {
		a := h.start("alice")
		h.outcome(h.prompt(a, "1", ""), supervisor.Crashed)
		time.Sleep(time.Second) // in the bubble's time
		var got []string
		for _, e := range h.events(a) {
			got = append(got, string(e.Data))
		}
		reason := `child crashed: process ended (incarnation 1, exit status 3)`
		want := []string{
			`{"type":"agent_state","state":"starting","incarnation":1}`,
			`{"type":"agent_state","state":"ready","incarnation":1}`,
			`{"type":"turn_start","turn_id":"1"}`,
			`{"type":"message_update","event":{"type":"text_delta","delta":"half"}}`,
			`{"type":"turn_end","turn_id":"1","outcome":"crashed","error":"` + reason + `"}`,
			`{"type":"agent_state","state":"backoff","incarnation":1,"reason":"` + reason + `"}`,
			`{"type":"agent_state","state":"starting","incarnation":2}`,
			`{"type":"agent_state","state":"ready","incarnation":2}`,
		}
		if !slices.Equal(got, want) {
			h.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestExitZeroInTurnIsACrash(t *testing.T) {
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) { c.Crash(supervisor.Exit{}) }}
	run(t, always(play), func(h *house) {
		r := h.outcome(h.prompt(h.start("alice"), "1", ""), supervisor.Crashed)
		if !strings.Contains(r.Err.Error(), "exit status 0") {
			h.Errorf("error %v", r.Err)
		}
	})
}

func TestExitWhileIdleIsACrash(t *testing.T) {
	run(t, nil, func(h *house) {
		a := h.start("alice")
		h.launcher.Child("alice").Crash(supervisor.Exit{Code: -1, Signal: "killed"})
		synctest.Wait()
		h.state(a, supervisor.Backoff)
		time.Sleep(100 * time.Millisecond) // in the bubble's time
		synctest.Wait()
		h.state(a, supervisor.Ready)
	})
}

// Six crashes within ten seconds and the agent has failed; Shutdown forgives.
func TestFailed(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: crash}), func(h *house) {
		a := h.start("alice")
		start := time.Now()
		var turns []*supervisor.Turn
		for _, id := range strings.Fields("1 2 3 4 5 6 7 8") {
			turns = append(turns, h.prompt(a, id, ""))
		}
		for _, turn := range turns {
			h.outcome(turn, supervisor.Crashed)
		}
		if d := since(start); d != 3100*time.Millisecond { // 0.1+0.2+0.4+0.8+1.6
			h.Errorf("failed after %v", d)
		}
		if r := h.outcome(turns[7], supervisor.Crashed); r.Incarnation != 0 {
			h.Errorf("what waited ran in incarnation %d", r.Incarnation)
		}
		h.state(a, supervisor.Failed)
		if _, err := a.Prompt(h.Context(), protocol.Prompt{ID: "9"}, supervisor.PromptOptions{}); !errors.Is(err, supervisor.ErrFailed) {
			h.Errorf("Prompt = %v, want ErrFailed", err)
		}
		if _, err := supervisor.Do(h.Context(), a, protocol.GetState{}); !errors.Is(err, supervisor.ErrFailed) {
			h.Errorf("Do = %v, want ErrFailed", err)
		}
		if err := a.Shutdown(h.Context()); err != nil {
			h.Errorf("Shutdown = %v", err)
		}
		h.state(a, supervisor.Stopped)
		if _, err := supervisor.Do(h.Context(), a, protocol.GetState{}); err != nil {
			h.Errorf("Do after Shutdown = %v", err)
		}
	})
}

// Whoever asks between the end of a turn and what follows of the crash is told of the latter: here
// the outcome takes its time to be recorded.
func TestFailedBeforeTheOutcomeIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{T: t, launcher: &supervisortest.Launcher{Plan: always(supervisortest.Play{Prompt: crash})}}
		h.sup = supervisor.New(supervisor.Options{
			Launcher: h.launcher, StopTimeout: time.Hour,
			Store: openRecords(func(string) (supervisor.Records, error) { return heavy{}, nil }),
		})
		defer h.drain()
		a, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice", Policy: supervisor.Policy{Limit: -1}})
		if err != nil {
			t.Fatal(err)
		}
		first := h.prompt(a, "1", "")
		synctest.Wait()
		if _, err := a.Prompt(h.Context(), protocol.Prompt{ID: "2"}, supervisor.PromptOptions{}); !errors.Is(err, supervisor.ErrFailed) {
			h.Errorf("Prompt = %v, want ErrFailed", err)
		}
		h.outcome(first, supervisor.Crashed)
	})
}

// A restart that does not become ready counts as a crash like any other.
func TestRestartFails(t *testing.T) {
	for _, c := range []struct {
		name string
		play supervisortest.Play
		took time.Duration // of each attempt
		want string
	}{
		{"refused", supervisortest.Play{Refuse: errors.New("no such program")}, 0, "no such program"},
		{"never ready", supervisortest.Play{NeverReady: true}, 10 * time.Second, "not ready in 10s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, series(supervisortest.Play{Prompt: crash}, c.play, supervisortest.Play{}), func(h *house) {
				a := h.start("alice")
				first, second := h.prompt(a, "1", ""), h.prompt(a, "2", "x")
				h.outcome(first, supervisor.Crashed)
				start := time.Now()
				r := h.outcome(second, supervisor.Completed)
				if want := 300*time.Millisecond + c.took; since(start) != want || r.Incarnation != 3 {
					h.Errorf("back after %v in incarnation %d, want %v", since(start), r.Incarnation, want)
				}
				if info := a.Info(); !strings.Contains(info.LastError, c.want) || info.Restarts != 1 {
					h.Errorf("info %+v", info)
				}
			})
		})
	}
}

// A program that is no child of our version is not tried again: it was replaced,
// and says the same each time.
func TestWrongVersionIsNotRetried(t *testing.T) {
	run(t, series(supervisortest.Play{Prompt: crash}, supervisortest.Play{Version: 2}), func(h *house) {
		a := h.start("alice")
		first, waiting := h.prompt(a, "1", ""), h.prompt(a, "2", "x")
		h.outcome(first, supervisor.Crashed)
		if r := h.outcome(waiting, supervisor.Crashed); !strings.Contains(r.Err.Error(), "protocol version 2, want 1") {
			h.Errorf("what waited: %v", r.Err)
		}
		time.Sleep(time.Hour) // in the bubble's time
		h.state(a, supervisor.Failed)
		if again := h.launcher.Launches("alice"); len(again) != 2 {
			h.Errorf("launched with again = %v, want one attempt more", again)
		}
		_, err := a.Prompt(h.Context(), protocol.Prompt{ID: "3"}, supervisor.PromptOptions{})
		if !errors.Is(err, supervisor.ErrFailed) || !strings.Contains(err.Error(), "protocol version 2, want 1") {
			h.Errorf("Prompt = %v, want ErrFailed with the reason", err)
		}
		if stats := h.sup.Stats(); stats.Crashes[supervisor.ReasonProtocol] != 1 || len(stats.Restarts) != 0 {
			h.Errorf("stats %+v", stats)
		}
		if err := a.Shutdown(h.Context()); err != nil { // asked for, it is tried once more
			h.Error(err)
		}
		h.outcome(h.prompt(a, "4", "x"), supervisor.Crashed)
		h.state(a, supervisor.Failed)
	})
}

// A child that reads nothing is lost after the write deadline.
func TestDeafChild(t *testing.T) {
	run(t, series(supervisortest.Play{Deaf: true}, supervisortest.Play{}), func(h *house) {
		a := h.start("alice")
		start := time.Now()
		r := h.outcome(h.prompt(a, "1", ""), supervisor.Crashed)
		if since(start) != 10*time.Second || !strings.Contains(r.Err.Error(), "stdin not read in 10s") {
			h.Errorf("%v after %v", r.Err, since(start))
		}
		h.outcome(h.prompt(a, "2", ""), supervisor.Completed)
	})
}

// A response that cannot be read ends the incarnation: whoever waits for it
// would wait for good.
func TestUnreadableResponse(t *testing.T) {
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Line(`{"type":"response","command":"prompt"}`)
	}}
	run(t, always(play), func(h *house) {
		r := h.outcome(h.prompt(h.start("alice"), "1", ""), supervisor.Crashed)
		if !strings.Contains(r.Err.Error(), `unreadable response: response: member "id" is missing`) {
			h.Errorf("error %v", r.Err)
		}
	})
}

// What follows a line that cannot be read, in the same write, is not carried out: neither a
// success, nor an event.
func TestNothingCountsAfterAnUnreadableLine(t *testing.T) {
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Line(`{"type":"agent_end","usage":{"input_tokens":-5},"stop_reason":"completed"}`)
		c.Line(`{"type":"message_update","event":{"type":"text_delta","delta":"late"}}`)
		c.Line(`{"type":"response","id":"` + p.ID + `","command":"prompt","ok":true}`)
	}}
	run(t, series(play, supervisortest.Play{}), func(h *house) {
		a := h.start("alice")
		if r := h.outcome(h.prompt(a, "1", ""), supervisor.Crashed); r.Text != "" || !strings.Contains(r.Err.Error(), "unreadable agent_end") {
			h.Errorf("result %+v", r)
		}
		for _, e := range h.events(a) {
			if e.Type == "message_update" {
				h.Errorf("event %s", e.Data)
			}
		}
		h.outcome(h.prompt(a, "2", ""), supervisor.Completed)
	})
}

func TestShutdown(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: supervisortest.UntilAborted}), func(h *house) {
		a := h.start("alice")
		running, waiting := h.prompt(a, "1", ""), h.prompt(a, "2", "")
		synctest.Wait()
		if err := a.Shutdown(h.Context()); err != nil {
			h.Fatal(err)
		}
		for _, turn := range []*supervisor.Turn{running, waiting} {
			if r := h.outcome(turn, supervisor.Cancelled); !errors.Is(r.Err, supervisor.ErrAborted) {
				h.Errorf("%s: %v", turn.ID(), r.Err)
			}
		}
		if info := h.state(a, supervisor.Stopped); !info.ShouldShutdown || info.PID != 0 {
			h.Errorf("info %+v", info)
		}
		if err := a.Shutdown(h.Context()); err != nil { // again
			h.Error(err)
		}
		h.prompt(a, "3", "")
		synctest.Wait()
		if info := h.state(a, supervisor.Busy); info.ShouldShutdown || info.Incarnation != 2 || info.Restarts != 0 {
			h.Errorf("info %+v", info)
		}
		if again := h.launcher.Launches("alice"); !slices.Equal(again, []bool{false, true}) {
			h.Errorf("launched with again = %v", again)
		}
	})
}

// A child that takes its time, or does not go at all, holds up Shutdown for
// the ladder and no longer; a prompt meanwhile waits and starts it again.
func TestPromptWhileStopping(t *testing.T) {
	run(t, series(supervisortest.Play{StopAfter: time.Hour}, supervisortest.Play{}), func(h *house) {
		a := h.start("alice")
		stopped := make(chan error, 1)
		start := time.Now()
		go func() { stopped <- a.Shutdown(h.Context()) }()
		synctest.Wait()
		h.state(a, supervisor.Stopping)
		turn := h.prompt(a, "1", "x")
		if r := h.outcome(turn, supervisor.Completed); r.Incarnation != 2 || since(start) != 5*time.Second {
			h.Errorf("ran in incarnation %d after %v", r.Incarnation, since(start))
		}
		if err := <-stopped; err != nil {
			h.Error(err)
		}
	})
}

func TestShutdownInBackoff(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: crash}), func(h *house) {
		a := h.start("alice")
		first, second := h.prompt(a, "1", ""), h.prompt(a, "2", "")
		h.outcome(first, supervisor.Crashed)
		if err := a.Shutdown(h.Context()); err != nil {
			h.Error(err)
		}
		h.outcome(second, supervisor.Cancelled)
		time.Sleep(time.Minute) // in the bubble's time: the restart that was due
		h.state(a, supervisor.Stopped)
	})
}

func TestShutdownWhileRestarting(t *testing.T) {
	run(t, series(supervisortest.Play{Prompt: crash}, supervisortest.Play{NeverReady: true}), func(h *house) {
		a := h.start("alice")
		h.outcome(h.prompt(a, "1", ""), supervisor.Crashed)
		time.Sleep(time.Second) // in the bubble's time
		h.state(a, supervisor.Starting)
		waiting := make(chan error, 1)
		go func() {
			_, err := supervisor.Do(context.Background(), a, protocol.GetState{})
			waiting <- err
		}()
		synctest.Wait()
		start := time.Now()
		if err := a.Shutdown(h.Context()); err != nil || since(start) != 0 {
			h.Errorf("%v after %v", err, since(start))
		}
		if err := <-waiting; !errors.Is(err, supervisor.ErrStopped) {
			h.Errorf("Do = %v, want ErrStopped", err)
		}
		h.state(a, supervisor.Stopped)
	})
}

// A session that cannot be opened is named also where an agent does not come back
// for it.
func TestSessionOfARestart(t *testing.T) {
	refusal := &supervisor.StartError{Err: &supervisor.SessionError{Name: "alice", InUse: true}, Exit: &supervisor.Exit{Code: 75}}
	run(t, series(supervisortest.Play{}, supervisortest.Play{Refuse: refusal}), func(h *house) {
		a := h.start("alice")
		if err := a.Shutdown(h.Context()); err != nil {
			h.Fatal(err)
		}
		_, err := supervisor.Do(h.Context(), a, protocol.GetState{})
		if e, ok := errors.AsType[*supervisor.SessionError](err); !ok || !e.InUse || e.Name != "alice" {
			h.Errorf("error = %v", err)
		}
		h.state(a, supervisor.Failed)
	})
}
