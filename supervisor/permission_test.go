package supervisor_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// asks plays a turn that asks for a permission and says what came of it.
func asks(c *supervisortest.Child, p protocol.Prompt) {
	r, ok := c.Permission(p, protocol.PermissionRequest{ToolName: "shell", Action: protocol.ActionExecute, Summary: p.Message})
	c.Say(fmt.Sprintf("%v %s %s", ok, r.Decision, r.Reason))
	c.Finish(p, "")
}

func (h *house) asked(a *supervisor.Agent) protocol.PermissionRequest {
	h.Helper()
	synctest.Wait()
	waiting := a.PermissionRequests()
	if len(waiting) != 1 || a.Info().Asked != 1 {
		h.Fatalf("%d requests wait, want 1", len(waiting))
	}
	return waiting[0]
}

func TestRespondPermission(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: asks}), func(h *house) {
		a := h.start("a")
		turn := h.prompt(a, "1", "run make")
		r := h.asked(a)
		if r.Summary != "run make" || r.TurnID != "1" {
			t.Errorf("asked %+v", r)
		}
		answer := protocol.PermissionResponse{RequestID: r.RequestID, Decision: protocol.Deny, Reason: "not now"}
		if err := a.RespondPermission(h.Context(), answer); err != nil {
			t.Error(err)
		}
		if err := a.RespondPermission(h.Context(), answer); !errors.Is(err, supervisor.ErrNoRequest) {
			t.Errorf("a second answer: %v", err)
		}
		h.says(turn, "true deny not now")
		if left := a.PermissionRequests(); len(left) > 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

// A request ends with its turn and with its process.
func TestPermissionEnds(t *testing.T) {
	for name, end := range map[string]func(h *house, a *supervisor.Agent){
		"cancelled": func(h *house, a *supervisor.Agent) { _, _ = a.Abort(h.Context(), "") },
		"crashed":   func(h *house, a *supervisor.Agent) { h.launcher.Child("a").Crash(supervisor.Exit{Code: 1}) },
		"shut down": func(h *house, a *supervisor.Agent) { _ = a.Shutdown(h.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, always(supervisortest.Play{Prompt: asks}), func(h *house) {
				a := h.start("a")
				turn := h.prompt(a, "1", "run make")
				r := h.asked(a)
				end(h, a)
				<-turnEnded(h, turn)
				synctest.Wait()
				if left := a.PermissionRequests(); len(left) > 0 || a.Info().Asked != 0 {
					t.Errorf("left: %+v", left)
				}
				err := a.RespondPermission(h.Context(), protocol.PermissionResponse{RequestID: r.RequestID, Decision: protocol.AllowOnce})
				if !errors.Is(err, supervisor.ErrNoRequest) {
					t.Errorf("an answer afterwards: %v", err)
				}
			})
		})
	}
}

// One request too many is denied at once.
func TestTooManyPermissions(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		for i := range 64 {
			c.Emit(protocol.PermissionRequest{RequestID: fmt.Sprint("x", i)})
		}
		asks(c, p)
	}}), func(h *house) {
		a := h.start("a")
		h.says(h.prompt(a, "1", "x"), "true deny too many requests wait for an answer")
		if n := len(a.PermissionRequests()); n != 64 {
			t.Errorf("%d wait, want 64", n)
		}
	})
}
