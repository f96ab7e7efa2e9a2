package supervisor_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
	if len(waiting) != 1 || len(a.Info().Asked) != 1 {
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

// An option of a program's own question is one that it offers, and of the kind of the decision.
func TestRespondWithOption(t *testing.T) {
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		r, _ := c.Permission(p, protocol.PermissionRequest{ToolName: "Bash", Options: []protocol.PermissionOption{
			{ID: "once", Name: "Yes", Kind: protocol.AllowOnce}, {ID: "no", Name: "No", Kind: protocol.Deny},
		}})
		c.Say(r.OptionID)
		c.Finish(p, "")
	}}
	run(t, always(play), func(h *house) {
		a := h.start("a")
		turn := h.prompt(a, "1", "run make")
		answer := protocol.PermissionResponse{RequestID: h.asked(a).RequestID, Decision: protocol.AllowOnce}
		for _, wrong := range []string{"never", "no"} {
			answer.OptionID = wrong
			if _, ok := errors.AsType[*supervisor.OptionError](a.RespondPermission(h.Context(), answer)); !ok {
				t.Errorf("the option %s is taken", wrong)
			}
		}
		answer.OptionID = "once"
		if err := a.RespondPermission(h.Context(), answer); err != nil {
			t.Error(err)
		}
		h.says(turn, "once")
	})
}

// An answer that the child took, and did not act on as the turn was cancelled, has
// not counted: whoever gave it is told so, as everybody else is.
func TestAnswerBesideACancel(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Emit(protocol.PermissionRequest{RequestID: "x", TurnID: p.ID})
		<-c.Aborted()
		c.Emit(protocol.PermissionEnd{RequestID: "x", Outcome: "cancelled"})
		c.Finish(p, "")
	}, Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
		_, answer := cmd.(protocol.PermissionResponse)
		if answer {
			c.Respond(cmd, map[string]any{"ok": true})
		}
		return answer
	}}), func(h *house) {
		a := h.start("a")
		turn := h.prompt(a, "1", "run make")
		r := h.asked(a)
		responded := make(chan error, 1)
		go func() {
			responded <- a.RespondPermission(h.Context(), protocol.PermissionResponse{RequestID: r.RequestID, Decision: protocol.AllowOnce})
		}()
		synctest.Wait() // the child has it
		if _, err := a.Abort(h.Context(), "1"); err != nil {
			t.Error(err)
		}
		h.outcome(turn, supervisor.Cancelled)
		if err := <-responded; !errors.Is(err, supervisor.ErrNoRequest) {
			t.Errorf("the answer: %v", err)
		}
	})
}

// An answer that was not offered is none, and the request waits on.
func TestDecisionThatIsNotOffered(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		r, _ := c.Permission(p, protocol.PermissionRequest{Decisions: []protocol.Decision{protocol.AllowOnce, protocol.Deny}})
		c.Say(string(r.Decision))
		c.Finish(p, "")
	}}), func(h *house) {
		a := h.start("a")
		turn := h.prompt(a, "1", "run make")
		r := h.asked(a)
		err := a.RespondPermission(h.Context(), protocol.PermissionResponse{RequestID: r.RequestID, Decision: protocol.AllowSession})
		if e, ok := errors.AsType[*supervisor.DecisionError](err); !ok || len(e.Offered) != 2 {
			t.Errorf("got %v", err)
		}
		h.asked(a)
		if err := a.RespondPermission(h.Context(), protocol.PermissionResponse{RequestID: r.RequestID, Decision: protocol.AllowOnce}); err != nil {
			t.Error(err)
		}
		h.says(turn, "allow_once")
	})
}

// A request ends with its turn and with its process, and that is told once,
// before what became of the turn and of the agent: whoever shows it to a person
// takes it away then. Nothing that comes later is an answer.
func TestPermissionEnds(t *testing.T) {
	crash := func(h *house, _ *supervisor.Agent) { h.launcher.Child("a").Crash(supervisor.Exit{Code: 1}) }
	for name, tt := range map[string]struct {
		end func(h *house, a *supervisor.Agent)
		// next is what is told after the end of the request. A child that is told
		// to go ends it by itself as well.
		next string
	}{
		"cancelled": {func(h *house, a *supervisor.Agent) { _, _ = a.Abort(h.Context(), "") }, "message_update"},
		"crashed":   {crash, "turn_end"},
		"mad":       {func(h *house, a *supervisor.Agent) { h.launcher.Child("a").Line(`{"type":"response"}`) }, "agent_state"},
		"shut down": {func(h *house, a *supervisor.Agent) { _ = a.Shutdown(h.Context()) }, "agent_state"},
		"destroyed": {func(h *house, a *supervisor.Agent) { _ = h.sup.Remove(h.Context(), "a") }, "agent_state"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, always(supervisortest.Play{Prompt: asks}), func(h *house) {
				a := h.start("a")
				follow, err := a.Subscribe(0)
				if err != nil {
					t.Fatal(err)
				}
				defer follow.Close()
				turn := h.prompt(a, "1", "run make")
				r := h.asked(a)
				tt.end(h, a)
				<-turnEnded(h, turn)
				synctest.Wait()
				if left := a.PermissionRequests(); len(left) > 0 || len(a.Info().Asked) != 0 {
					t.Errorf("left: %+v", left)
				}
				err = a.RespondPermission(h.Context(), protocol.PermissionResponse{RequestID: r.RequestID, Decision: protocol.AllowOnce})
				if !errors.Is(err, supervisor.ErrNoRequest) && name != "destroyed" {
					t.Errorf("an answer afterwards: %v", err)
				}
				var told []string
				for _, e := range kept(h, follow) {
					told = append(told, e.Type)
				}
				at := slices.Index(told, "permission_end")
				if at < 0 || told[at+1] != tt.next || slices.Contains(told[at+1:], "permission_end") {
					t.Errorf("told %v, want %s after the end of the request", told, tt.next)
				}
			})
		})
	}
}

// What the next process asks has another id: an answer to the crashed one is
// no answer to it.
func TestAnswerAfterACrash(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: asks}), func(h *house) {
		a := h.start("a")
		turn := h.prompt(a, "1", "run make")
		before := h.asked(a)
		h.launcher.Child("a").Crash(supervisor.Exit{Code: 1})
		<-turnEnded(h, turn)
		turn = h.prompt(a, "2", "run rm")
		time.Sleep(time.Minute) // in the bubble's time: the restart
		now := h.asked(a)
		err := a.RespondPermission(h.Context(), protocol.PermissionResponse{RequestID: before.RequestID, Decision: protocol.AllowOnce})
		if !errors.Is(err, supervisor.ErrNoRequest) {
			t.Errorf("got %v", err)
		}
		if err := a.RespondPermission(h.Context(), protocol.PermissionResponse{RequestID: now.RequestID, Decision: protocol.Deny}); err != nil {
			t.Error(err)
		}
		h.says(turn, "true deny ")
	})
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
