package stdio_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/proc"
	"nexus.internal/supervisor/stdio"
	"nexus.internal/supervisor/supervisortest"
)

// This file is about what only a supervisor can tell of its children: that one
// hangs, and what is done about it.

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// ward is a supervisor of real processes.
type ward struct {
	*testing.T
	*supervisor.Supervisor
	ctx  context.Context
	logs *observer.ObservedLogs
	end  func() // drains it, once
}

func newWard(t *testing.T, l *stdio.Launcher) *ward {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	w := &ward{T: t, ctx: ctx, logs: logs, Supervisor: supervisor.New(supervisor.Options{
		Launcher: l, Log: zap.New(core), StopTimeout: patience,
	})}
	w.end = sync.OnceFunc(func() {
		defer cancel()
		if err := w.Supervisor.Run(killed()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.end)
	return w
}

func (w *ward) start(s supervisor.Spec) *supervisor.Agent {
	w.Helper()
	a, err := w.Start(w.ctx, s)
	if err != nil {
		w.Fatal(err)
	}
	return a
}

func (w *ward) prompt(a *supervisor.Agent, id, message string) *supervisor.Turn {
	w.Helper()
	turn, err := a.Prompt(w.ctx, protocol.Prompt{ID: id, Message: message}, supervisor.PromptOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return turn
}

// becomes waits until the agent tells of a state, and returns the reason.
func (w *ward) becomes(a *supervisor.Agent, want ...supervisor.State) (reason string) {
	w.Helper()
	sub, err := a.Subscribe(0)
	if err != nil {
		w.Fatal(err)
	}
	defer sub.Close()
	for {
		batch, err := sub.Next(w.ctx)
		if err != nil {
			w.Fatalf("%s is never %s: %v", a.ID(), want, err)
		}
		for _, e := range batch {
			state := gjson.GetBytes(e.Data, "state").Str
			if e.Type == "agent_state" && slices.ContainsFunc(want, func(s supervisor.State) bool { return s.String() == state }) {
				return gjson.GetBytes(e.Data, "reason").Str
			}
		}
	}
}

// says waits until a turn has said so.
func (w *ward) says(turn *supervisor.Turn, want string) {
	w.Helper()
	var at supervisor.Place
	for said := ""; said != want; {
		text, next, err := turn.Read(w.ctx, at)
		if err != nil {
			w.Fatalf("said %q, want %q: %v", said, want, err)
		}
		said, at = said+text, next
	}
}

// signals sends the agent's process a signal.
func (w *ward) signals(a *supervisor.Agent, sig syscall.Signal) {
	w.Helper()
	if err := syscall.Kill(a.Info().PID, sig); err != nil {
		w.Fatal(err)
	}
}

// Each way to fail has its reason, and each is a crash that is followed by a
// restart.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		fault  string
		limits supervisor.Limits
		idle   bool // it needs no turn
		cancel bool
		write  time.Duration // how long it may leave a write unread; 0 is 300 ms
		reason supervisor.Reason
		says   string
	}{
		{fault: "exit-0-in-turn", reason: supervisor.ReasonExit, says: "process ended (incarnation 1, exit status 0)"},
		{fault: "exit-3-in-turn", reason: supervisor.ReasonExit, says: "process ended (incarnation 1, exit status 3)"},
		{fault: "killed-in-frame", reason: supervisor.ReasonSignal, says: "process ended (incarnation 1, signal: killed)"},
		{fault: "two-readies", idle: true, reason: supervisor.ReasonOutput, says: "child said ready again"},
		{fault: "flood-stdout", reason: supervisor.ReasonOutput, says: "more than 100 lines on the child's stdout were no frames"},
		{fault: "stdout-closed", reason: supervisor.ReasonOutput, says: "child closed its stdout"},
		{fault: "stdin-never-read", reason: supervisor.ReasonStdin, says: "stdin not read in 300ms"},
		{fault: "flood-unread", reason: supervisor.ReasonStdin, says: "stdin not read in 300ms"},
		{fault: "asks-unread", idle: true, write: time.Minute, reason: supervisor.ReasonStdin, says: "it does not read what it asked for: 2048 frames wait"},
		{fault: "long-call-id", reason: supervisor.ReasonOutput, says: "the call_id of a host_call has 5000 bytes, and may have 4096"},
		{fault: "silent-turn", cancel: true, reason: supervisor.ReasonCancel, says: "cancel not honoured in 300ms"},
		{fault: "stop-self", cancel: true, reason: supervisor.ReasonCancel, says: "cancel not honoured in 300ms"},
		{fault: "ping-unanswered", idle: true, reason: supervisor.ReasonPing, says: "ping not answered in 300ms"},
		{fault: "stop-self", reason: supervisor.ReasonPing, says: "ping not answered in 300ms"},
		{
			fault: "output-hog", limits: supervisor.Limits{OutputBytesPerSecond: 1000},
			reason: supervisor.ReasonLimit, says: "killed: output limit 1000 bytes/s",
		},
	} {
		t.Run(fmt.Sprintf("%s by %s", c.fault, c.reason), func(t *testing.T) {
			w := newWard(t, &stdio.Launcher{CommandLine: player{}, Graces: rungs, WriteTimeout: cmp.Or(c.write, 300*time.Millisecond)})
			spec := fake(c.fault, "")
			spec.Limits, spec.AbortGrace = c.limits, 300*time.Millisecond
			spec.Provider = "--fault=none"
			if c.reason == supervisor.ReasonPing {
				spec.PingEvery, spec.PingTimeout = 50*time.Millisecond, 300*time.Millisecond
			}
			a := w.start(spec)
			if !c.idle {
				turn := w.prompt(a, "1", strings.Repeat("x", 200<<10))
				if c.cancel {
					if _, err := a.Abort(w.ctx, "1"); err == nil {
						t.Error("the cancel was honoured")
					}
				}
				_, err := turn.Wait(w.ctx)
				if e, ok := errors.AsType[*supervisor.CrashError](err); !ok || e.Reason != c.reason || e.Exit == nil {
					t.Errorf("the turn: %#v", err)
				}
			}
			if got := w.becomes(a, supervisor.Backoff); !strings.Contains(got, c.says) {
				t.Errorf("crashed by %q, want %q", got, c.says)
			}
			if n := w.Stats().Crashes[c.reason]; n == 0 {
				t.Errorf("crashes %v", w.Stats().Crashes)
			}
			if r, err := w.prompt(a, "2", "hello").Wait(w.ctx); c.reason != supervisor.ReasonPing && (err != nil || r.Text != "hello") {
				t.Errorf("after the restart: %+v, %v", r, err)
			}
			if info := a.Info(); info.LastRestart != c.reason {
				t.Errorf("last restart by %q", info.LastRestart)
			}
		})
	}
}

// What is no child of ours is not tried again, though it was one once.
func TestReplacedProgram(t *testing.T) {
	for fault, want := range map[string]string{
		"wrong-version":      "child speaks protocol version 2, want 1",
		"missing-version":    `member "protocol_version" is missing`,
		"event-before-ready": `child's first frame is "message_update", want ready`,
	} {
		t.Run(fault, func(t *testing.T) {
			w := newWard(t, &stdio.Launcher{CommandLine: player{}})
			if _, err := w.Start(w.ctx, fake(fault, "")); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Start = %v, want %s", err, want)
			} else if _, ok := errors.AsType[*supervisor.HandshakeError](err); !ok {
				t.Errorf("Start = %v, want a *HandshakeError", err)
			}
			spec := fake("none", "")
			spec.Provider = "--fault=" + fault
			a := w.start(spec)
			w.signals(a, syscall.SIGKILL)
			if reason := w.becomes(a, supervisor.Failed); !strings.Contains(reason, want) || a.Info().Incarnation != 2 {
				t.Errorf("failed by %q in incarnation %d", reason, a.Info().Incarnation)
			}
		})
	}
}

// A child that is stopped for a while, again and again, idle and in its turns,
// loses nothing but time.
func TestStoppedForAWhile(t *testing.T) {
	w := newWard(t, &stdio.Launcher{CommandLine: player{}})
	spec := fake("slow-frames", "")
	spec.PingEvery, spec.PingTimeout = 5*time.Millisecond, patience
	a := w.start(spec)
	for i := range 5 {
		w.signals(a, syscall.SIGSTOP)
		turn := w.prompt(a, fmt.Sprint("unread ", i), "hello")
		w.signals(a, syscall.SIGCONT)
		begun := w.prompt(a, fmt.Sprint("begun ", i), "hello")
		w.says(begun, "hello")
		w.signals(a, syscall.SIGSTOP)
		w.signals(a, syscall.SIGCONT)
		for _, turn := range []*supervisor.Turn{turn, begun} {
			if r, err := turn.Wait(w.ctx); err != nil || r.Text != "hello" {
				t.Errorf("%s: %+v, %v", turn.ID(), r, err)
			}
		}
	}
	if info := a.Info(); info.Incarnation != 1 {
		t.Errorf("info %+v", info)
	}
}

// A child that stays stopped is found out by its ping, idle as in a turn.
func TestStoppedForGood(t *testing.T) {
	for _, inTurn := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a turn %v", inTurn), func(t *testing.T) {
			w := newWard(t, &stdio.Launcher{CommandLine: player{}})
			spec := fake("silent-turn", "")
			spec.PingEvery, spec.PingTimeout = 50*time.Millisecond, time.Second
			a := w.start(spec)
			var turn *supervisor.Turn
			if inTurn {
				turn = w.prompt(a, "1", "hello")
			}
			w.signals(a, syscall.SIGSTOP)
			if got, want := w.becomes(a, supervisor.Backoff), "child crashed: ping not answered in 1s (incarnation 1, signal: killed)"; got != want {
				t.Errorf("crashed by %q, want %q", got, want)
			}
			if inTurn {
				if r, _ := turn.Wait(w.ctx); r.Outcome != supervisor.Crashed {
					t.Errorf("the turn: %+v", r)
				}
			}
		})
	}
}

// A stopped child is continued to be told to go, and goes by itself.
func TestStoppedInADrain(t *testing.T) {
	slow := proc.Graces{Shutdown: patience, Close: patience, Term: patience}
	w := newWard(t, &stdio.Launcher{CommandLine: player{}, Graces: slow})
	for i := range 3 {
		spec := fake("none", "")
		spec.ID = fmt.Sprint("fake", i)
		w.signals(w.start(spec), syscall.SIGSTOP)
	}
	w.end()
	stopped := w.logs.FilterMessage("agent stopped").All()
	if len(stopped) != 3 {
		t.Fatalf("%d were stopped, want 3", len(stopped))
	}
	for _, entry := range stopped {
		if exit := entry.ContextMap()["exit"]; exit != "exit status 0" {
			t.Errorf("ended with %v, want that it went by itself", exit)
		}
	}
}

// One that stops itself whenever it is continued is killed in the end.
func TestStopsItselfInADrain(t *testing.T) {
	w := newWard(t, &stdio.Launcher{CommandLine: player{}, Graces: rungs})
	turn := w.prompt(w.start(fake("stop-self", "")), "1", "hello")
	w.says(turn, "hellohere") // it stops after this
	w.end()
	if r, err := turn.Wait(w.ctx); r.Outcome != supervisor.Cancelled {
		t.Errorf("the turn: %+v, %v", r, err)
	}
	if stopped := w.logs.FilterMessage("agent stopped").All(); len(stopped) != 1 || stopped[0].ContextMap()["exit"] != "signal: killed" {
		t.Errorf("stopped: %v", stopped)
	}
}

// A child that says more than can be read and reads nothing, while prompts of
// nearly a frame wait for it, blocks neither itself nor the others: it ends by
// the write's deadline, and each prompt has its outcome.
func TestFloodThatReadsNothing(t *testing.T) {
	w := newWard(t, &stdio.Launcher{CommandLine: player{}, WriteTimeout: 500 * time.Millisecond})
	spec := fake("flood-unread", "")
	spec.ID, spec.Policy = "flood", supervisor.Policy{Initial: time.Millisecond, Limit: 2}
	flood := w.start(spec)
	slow, err := flood.Subscribe(0) // reads nothing either
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	other := w.start(fake("none", ""))
	var turns []*supervisor.Turn
	for i := range 6 {
		turns = append(turns, w.prompt(flood, fmt.Sprint(i), strings.Repeat("x", 1<<20-1<<10)))
	}
	asked := make(chan error, 1)
	go func() {
		_, err := supervisor.Do(w.ctx, flood, protocol.GetState{})
		asked <- err
	}()
	for i := 0; flood.Info().State != supervisor.Failed; i++ {
		if r, err := w.prompt(other, fmt.Sprint(i), "hello").Wait(w.ctx); err != nil || r.Text != "hello" {
			t.Fatalf("the other agent: %+v, %v", r, err)
		}
	}
	for _, turn := range turns {
		_, err := turn.Wait(w.ctx)
		if e, ok := errors.AsType[*supervisor.CrashError](err); !ok || e.Reason != supervisor.ReasonStdin {
			t.Errorf("%s: %v", turn.ID(), err)
		}
	}
	if err := <-asked; err == nil {
		t.Error("it answered")
	}
	// Whether slow lost its place depends on how much the flood says in its time.
	if stats := w.Stats(); stats.Crashes[supervisor.ReasonStdin] != 3 {
		t.Errorf("stats %+v", stats)
	}
	if other.Info().Incarnation != 1 {
		t.Error("the other agent crashed, too")
	}
}

// Some hundred turns of real processes whose end is raced by cancels, kills, their
// time limit, the stop of their agent and its removal.
func TestRacesOfProcesses(t *testing.T) {
	w := newWard(t, &stdio.Launcher{CommandLine: player{}})
	got, err := supervisortest.Races{
		Supervisor: w.Supervisor, Workers: 6, Rounds: 50, Pause: time.Millisecond,
		Spec: func(id string) supervisor.Spec {
			spec := fake("slow-frames", "")
			spec.ID, spec.AbortGrace = id, patience
			spec.Policy = supervisor.Policy{Initial: time.Microsecond, Max: time.Microsecond, Limit: 1 << 30}
			return spec
		},
		Crash: func(a *supervisor.Agent) {
			if pid := a.Info().PID; pid != 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone
			}
		},
	}.Run(w.ctx)
	if err != nil {
		t.Error(err)
	}
	if turns := got[supervisor.Completed] + got[supervisor.Cancelled] + got[supervisor.Crashed] + got[supervisor.TimedOut]; turns != 300 {
		t.Errorf("%d turns, want 300: %v", turns, got)
	}
}
