package supervisor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// An agent of which nothing moves, in the midst of a flood of events, delays no
// other one in anything: nothing of them is shared. What held it here would be a
// mutex or a queue in common.
func TestAgentsAreIndependent(t *testing.T) {
	flood := func(c *supervisortest.Child, p protocol.Prompt) {
		if p.Message != "flood" {
			supervisortest.Echo(c, p)
			return
		}
		for {
			select {
			case <-c.Aborted():
				c.Finish(p, "")
				return
			case <-c.Gone():
				return
			default:
				c.Say("drip")
			}
		}
	}
	launcher := &supervisortest.Launcher{Plan: always(supervisortest.Play{Prompt: flood})}
	sup := supervisor.New(supervisor.Options{Launcher: launcher})
	defer func() {
		if err := sup.Run(killedContext()); err != nil {
			t.Error(err)
		}
	}()
	h := &house{T: t, launcher: launcher, sup: sup}
	alice := h.start("alice")
	flooding := h.prompt(alice, "1", "flood")
	if _, _, err := flooding.Read(t.Context(), supervisor.Place{}); err != nil {
		t.Fatal(err)
	}
	release := supervisor.Hold(alice)
	lives := make(chan error, 1)
	go func() { lives <- live(t, sup, launcher) }()
	select {
	case err := <-lives:
		release()
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		release()
		t.Error("another agent waits for one that is held")
		<-lives
	}
	if _, err := alice.Abort(t.Context(), ""); err != nil {
		t.Error(err)
	}
	h.outcome(flooding, supervisor.Cancelled)
}

// live is the whole life of another agent.
func live(t *testing.T, sup *supervisor.Supervisor, launcher *supervisortest.Launcher) error {
	ctx := t.Context()
	bob, err := sup.Start(ctx, supervisor.Spec{ID: "bob", Policy: supervisor.Policy{Initial: time.Millisecond}})
	if err != nil {
		return err
	}
	sub, err := bob.SubscribeNew()
	if err != nil {
		return err
	}
	defer sub.Close()
	for i := range 100 {
		turn, err := bob.Prompt(ctx, protocol.Prompt{ID: fmt.Sprint(i), Message: "x"}, supervisor.PromptOptions{})
		if err != nil {
			return err
		}
		if r, err := turn.Wait(ctx); err != nil || r.Text != "x" {
			return fmt.Errorf("turn %d: %+v: %w", i, r, err)
		}
	}
	if batch, err := sub.Next(ctx); err != nil || !strings.Contains(string(batch[0].Data), "turn_start") {
		return fmt.Errorf("events %v: %w", batch, err)
	}
	if _, err := supervisor.Do(ctx, bob, protocol.GetState{}); err != nil {
		return err
	}
	launcher.Child("bob").Crash(supervisor.Exit{Code: 1})
	for bob.Info().Restarts == 0 {
		if _, err := sub.Next(ctx); err != nil {
			return err
		}
	}
	turn, err := bob.Prompt(ctx, protocol.Prompt{ID: "last", Message: "flood"}, supervisor.PromptOptions{})
	if err != nil {
		return err
	}
	if cancelled, err := bob.Abort(ctx, "last"); err != nil || !cancelled {
		return fmt.Errorf("cancelled %v: %w", cancelled, err)
	}
	if _, err := turn.Wait(ctx); !errors.Is(err, supervisor.ErrAborted) {
		return fmt.Errorf("cancelled: %w", err)
	}
	if err := bob.Shutdown(ctx); err != nil {
		return err
	}
	return sup.Remove(ctx, "bob")
}
