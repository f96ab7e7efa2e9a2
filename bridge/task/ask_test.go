package task_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/bridge/task"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// asked puts a prompt to an agent that plays so, in a bubble of its own time, and returns the answer, the
// cost, how long it took and the ids of the turns. meanwhile runs beside it.
func asked(t *testing.T, prompt task.Prompt, play func(c *supervisortest.Child, p protocol.Prompt), meanwhile func(r *task.Runner)) (
	answer string, cost task.Cost, took time.Duration, ids string, err error,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var turns []string
		launcher := &supervisortest.Launcher{Plan: func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
				turns = append(turns, p.ID)
				play(c, p)
			}}
		}}
		sup := supervisor.New(supervisor.Options{Launcher: launcher})
		defer func() {
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := sup.Run(ended); err != nil {
				t.Error(err)
			}
		}()
		a, started := sup.Start(t.Context(), supervisor.Spec{ID: "a"})
		if started != nil {
			t.Fatal(started)
		}
		r := task.NewRunner(task.Options{})
		if meanwhile != nil {
			go meanwhile(r)
		}
		begun := time.Now()
		answer, cost, err = task.Ask(t.Context(), r, a, prompt, func(reply string) (string, error) {
			if reply != "good" {
				return "", fmt.Errorf("it is %q", reply)
			}
			return reply, nil
		})
		took = time.Since(begun)
		synctest.Wait()
		ids = strings.Join(turns, " ")
	})
	return answer, cost, took, ids, err
}

// failing fails the first n prompts so, and answers those after.
func failing(n int, fail func(c *supervisortest.Child, p protocol.Prompt)) func(c *supervisortest.Child, p protocol.Prompt) {
	return func(c *supervisortest.Child, p protocol.Prompt) {
		if n--; n >= 0 {
			fail(c, p)
			return
		}
		c.Say("good")
		c.Finish(p, "")
	}
}

func refusing(no protocol.Refusal) func(c *supervisortest.Child, p protocol.Prompt) {
	return func(c *supervisortest.Child, p protocol.Prompt) { c.FailFor(p, "it failed", no) }
}

func TestAttempts(t *testing.T) {
	crash := func(c *supervisortest.Child, _ protocol.Prompt) { c.Crash(supervisor.Exit{Code: 1}) }
	badly := func(c *supervisortest.Child, p protocol.Prompt) { c.Say("bad"); c.Finish(p, "") }
	down := refusing(protocol.Refusal{Reason: protocol.Unreachable})
	for name, tt := range map[string]struct {
		attempts int
		play     func(c *supervisortest.Child, p protocol.Prompt)
		ids      string
		fails    bool
		least    time.Duration // that it takes
	}{
		"once, as nothing else is said": {0, failing(1, crash), "t", true, 0},
		"after a crash":                 {3, failing(1, crash), "t t/attempt-2", false, time.Second},
		"after two faults":              {3, failing(2, down), "t t/attempt-2 t/attempt-3", false, 3 * time.Second},
		"no more than so many":          {3, failing(3, down), "t t/attempt-2 t/attempt-3", true, 3 * time.Second},
		"when the service wants to":     {2, failing(1, refusing(protocol.Refusal{Reason: protocol.RateLimited, RetryAfterMS: 40_000})), "t t/attempt-2", false, 40 * time.Second},
		"not when it wants it too late": {2, failing(1, refusing(protocol.Refusal{Reason: protocol.RateLimited, RetryAfterMS: 90_000})), "t", true, 0},
		"not when the time is over":     {9, failing(9, down), "t t/attempt-2 t/attempt-3 t/attempt-4 t/attempt-5 t/attempt-6", true, 31 * time.Second},
		"not what will not pass":        {3, failing(1, refusing(protocol.Refusal{Reason: protocol.Credentials})), "t", true, 0},
		"not after a bad answer":        {3, failing(2, badly), "t t/again", true, 0},
		"with a second turn": {3, failing(2, func(c *supervisortest.Child, p protocol.Prompt) {
			if strings.HasSuffix(p.ID, "/again") {
				crash(c, p)
				return
			}
			badly(c, p)
		}), "t t/again t/attempt-2", false, time.Second},
	} {
		answer, cost, took, ids, err := asked(t, task.Prompt{ID: "t", Text: "x", Timeout: time.Minute, Attempts: tt.attempts}, tt.play, nil)
		if ids != tt.ids || (err != nil) != tt.fails || (answer == "good") == tt.fails || took < tt.least || took > tt.least+20*time.Second {
			t.Errorf("%s: %s, answer %q, error %v, in %s", name, ids, answer, err, took)
		}
		if want := strings.Count(ids, "attempt") + 1; cost.Attempts != want || cost.Cancelled != nil {
			t.Errorf("%s: cost %+v, want %d attempts", name, cost, want)
		}
	}
}

// A task that is cancelled in a pause is not tried again.
func TestAttemptsCancelled(t *testing.T) {
	down := refusing(protocol.Refusal{Reason: protocol.RateLimited, RetryAfterMS: 40_000})
	_, cost, took, ids, err := asked(t, task.Prompt{ID: "t", Text: "x", Timeout: time.Hour, Attempts: 5}, failing(5, down), func(r *task.Runner) {
		<-time.After(10 * time.Second)
		if cancelled, err := r.Cancel(context.Background(), "a", "t"); err != nil || !cancelled {
			t.Errorf("cancelled %v, error %v", cancelled, err)
		}
	})
	if err != nil || !errors.Is(cost.Cancelled, supervisor.ErrAborted) || ids != "t" || took != 10*time.Second {
		t.Errorf("cost %+v, %s, error %v, in %s", cost, ids, err, took)
	}
}
