package supervisor_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// What a child took from its agent and could not save holds for the next process, too:
// it is told before its first prompt, until a change is saved; and so does what it took
// from the grant, which a key with may_grant could give back otherwise.
func TestUnsavedNarrowingOutlivesItsProcess(t *testing.T) {
	var seen []string // of the second incarnation and later ones
	full := true
	play := supervisortest.Play{Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
		set, ok := cmd.(protocol.SetPermissions)
		if !ok {
			return false
		}
		if c.Number() > 1 && set.Granted != nil {
			seen = append(seen, set.Permissions.Preset+" within "+string(set.Within)+", granted "+set.Granted.Preset)
		}
		if full {
			c.Respond(cmd, map[string]any{
				"ok": false, "error": "no space left", "reason": protocol.StorageFull, "permissions": map[string]any{"preset": "sandboxed"},
				"granted": map[string]any{"preset": "trusted"},
			})
		} else {
			c.Respond(cmd, map[string]any{"ok": true, "permissions": map[string]any{"preset": "sandboxed"}})
		}
		return true
	}, Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		seen = append(seen, p.Message)
		supervisortest.Echo(c, p)
	}}
	run(t, always(play), func(h *house) {
		a := h.start("alice")
		set := protocol.SetPermissions{Permissions: &protocol.Permissions{Preset: "sandboxed"}}
		_, err := supervisor.Do(h.Context(), a, set)
		if e, ok := errors.AsType[*supervisor.ChildError](err); !ok || e.Reason != protocol.StorageFull || e.Holds == nil {
			t.Fatalf("the answer is %v", err)
		}
		crash := func() {
			h.launcher.Child("alice").Crash(supervisor.Exit{Code: 3})
			synctest.Wait()
			h.state(a, supervisor.Backoff)
		}
		crash()
		h.outcome(h.prompt(a, "1", "hello"), supervisor.Completed)
		full = false
		crash()
		h.outcome(h.prompt(a, "2", "with room"), supervisor.Completed)
		crash()
		h.outcome(h.prompt(a, "3", "saved"), supervisor.Completed)
		if want := []string{"sandboxed within held, granted trusted", "hello", "sandboxed within held, granted trusted", "with room", "saved"}; !slices.Equal(seen, want) {
			t.Errorf("the next ones were told %q, want %q", seen, want)
		}
	})
}

// What could not be saved is tried again each second, until there is room, and no longer.
func TestUnsavedNarrowingIsTriedAgain(t *testing.T) {
	var tries atomic.Int64
	var room atomic.Bool
	play := supervisortest.Play{Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
		if _, ok := cmd.(protocol.SetPermissions); !ok {
			return false
		}
		answer := map[string]any{"ok": true, "permissions": map[string]any{"preset": "sandboxed"}}
		if first := tries.Add(1) == 1; !room.Load() {
			answer = map[string]any{"ok": false, "error": "no space left", "reason": protocol.StorageFull}
			if first { // later there is nothing more to take away
				answer["permissions"], answer["granted"] = map[string]any{"preset": "sandboxed"}, map[string]any{"preset": "trusted"}
			}
		}
		c.Respond(cmd, answer)
		return true
	}}
	run(t, always(play), func(h *house) {
		a := h.start("alice")
		set := protocol.SetPermissions{Permissions: &protocol.Permissions{Preset: "sandboxed"}}
		if _, err := supervisor.Do(h.Context(), a, set); err == nil {
			t.Fatal("there was room")
		}
		after := func(d time.Duration, want int64, unsaved bool) {
			t.Helper()
			time.Sleep(d) //nolint:forbidigo // the clock is that of synctest
			synctest.Wait()
			if got := a.Info().Narrowed != nil; tries.Load() != want || got != unsaved {
				t.Errorf("%d tries, unsaved %t, want %d, %t", tries.Load(), got, want, unsaved)
			}
		}
		after(3500*time.Millisecond, 4, true)
		room.Store(true)
		after(time.Second, 5, false)
		after(time.Minute, 5, false)
	})
}
