package supervisor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestTurn(t *testing.T) {
	run(t, nil, func(h *house) {
		a := h.start("alice")
		turn := h.prompt(a, "r1", "hello")
		r := h.outcome(turn, supervisor.Completed)
		r.Usage = protocol.TurnUsage{}
		want := supervisor.Result{
			TurnID: "r1", Outcome: supervisor.Completed, Text: "hello", StopReason: protocol.StopCompleted,
			Incarnation: 1, Attempt: 1,
		}
		if diff := cmp.Diff(want, r); diff != "" {
			h.Errorf("result (-want +got):\n%s", diff)
		}
		var got []string
		for i, e := range h.events(a) {
			if e.Seq != uint64(i+1) {
				h.Errorf("event %d has the number %d", i+1, e.Seq)
			}
			got = append(got, e.Type)
		}
		if diff := cmp.Diff(strings.Fields("agent_state agent_state turn_start message_update agent_end turn_end"), got); diff != "" {
			h.Errorf("events (-want +got):\n%s", diff)
		}
		if id := h.prompt(a, "", "no id").ID(); id == "" {
			h.Error("a prompt without an id got none")
		}
	})
}

// What Wait returns has been published before: nobody can see the end of a
// turn and miss its events.
func TestWaitFollowsEvents(t *testing.T) {
	run(t, nil, func(h *house) {
		a := h.start("alice")
		sub, err := a.Subscribe(0)
		if err != nil {
			h.Fatal(err)
		}
		defer sub.Close()
		for i := range 100 {
			id := fmt.Sprint(i)
			h.outcome(h.prompt(a, id, "x"), supervisor.Completed)
			batch, err := sub.Next(h.Context())
			if err != nil {
				h.Fatal(err)
			}
			last := batch[len(batch)-1]
			if last.Type != "turn_end" || !strings.Contains(string(last.Data), fmt.Sprintf(`"turn_id":%q`, id)) {
				h.Fatalf("after turn %s the last event is %s", id, last.Data)
			}
		}
	})
}

func TestTextOfTurn(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(c *supervisortest.Child)
		want string
	}{
		{"deltas are joined", func(c *supervisortest.Child) { c.Say("a"); c.Say("b") }, "ab"},
		{"a tool call sets text apart", func(c *supervisortest.Child) {
			c.Say("before")
			c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallStart{ToolID: "1", ToolName: "sleep"}})
			c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallResult{ToolID: "1", Result: "slept"}})
			c.Say("after")
			c.Say(".")
		}, "before\n\nafter."},
		{"nothing stands before a first tool call", func(c *supervisortest.Child) {
			c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallStart{ToolID: "1", ToolName: "sleep"}})
			c.Say("after")
		}, "after"},
		{"thinking is no text", func(c *supervisortest.Child) {
			c.Emit(protocol.MessageUpdate{Event: protocol.ThinkingDelta{Delta: "hm"}})
			c.Say("a")
		}, "a"},
		{"members in another order", func(c *supervisortest.Child) {
			c.Line(`{"event":{"delta":"é\n","type":"text_delta"},"type":"message_update"}`)
		}, "é\n"},
		{"what is not known is passed over", func(c *supervisortest.Child) {
			c.Line(`{"type":"message_update","event":{"type":"picture","delta":"no"}}`)
			c.Line(`{"type":"weather","delta":"no"}`)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			play := supervisortest.Play{Prompt: func(child *supervisortest.Child, p protocol.Prompt) {
				c.play(child)
				child.Finish(p, "")
			}}
			run(t, always(play), func(h *house) {
				r := h.outcome(h.prompt(h.start("alice"), "1", ""), supervisor.Completed)
				if r.Text != c.want || r.Truncated {
					h.Errorf("text = %q (truncated %v), want %q", r.Text, r.Truncated, c.want)
				}
			})
		})
	}
}

func TestTextIsBounded(t *testing.T) {
	piece := strings.Repeat("é", 100_000) // 200,000 bytes; 8 MiB is no multiple of it
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		for range 50 {
			c.Say("x" + piece)
		}
		c.Finish(p, "")
	}}
	run(t, always(play), func(h *house) {
		r := h.outcome(h.prompt(h.start("alice"), "1", ""), supervisor.Completed)
		if !r.Truncated || len(r.Text) > supervisor.MaxText || len(r.Text) < supervisor.MaxText-1 {
			h.Errorf("text of %d bytes, truncated %v", len(r.Text), r.Truncated)
		}
		if strings.ToValidUTF8(r.Text, "") != r.Text {
			h.Error("text was cut within a character")
		}
	})
}

func TestChildFailures(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(c *supervisortest.Child, p protocol.Prompt)
		want string
	}{
		{"a turn fails", func(c *supervisortest.Child, p protocol.Prompt) { c.Fail(p, "model overloaded") }, "model overloaded"},
		{"a prompt is refused", func(c *supervisortest.Child, p protocol.Prompt) { c.Refuse(p, "no such attachment") }, "no such attachment"},
		{"a response without a reason", func(c *supervisortest.Child, p protocol.Prompt) { c.Fail(p, "") }, "prompt was refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := always(supervisortest.Play{Prompt: func(child *supervisortest.Child, p protocol.Prompt) {
				if p.Message == "good" {
					supervisortest.Echo(child, p)
					return
				}
				c.play(child, p)
			}})
			run(t, plan, func(h *house) {
				a := h.start("alice")
				bad, good := h.prompt(a, "1", "bad"), h.prompt(a, "2", "good")
				start := time.Now()
				r := h.outcome(bad, supervisor.Erred)
				if e, ok := errors.AsType[*supervisor.ChildError](r.Err); !ok || e.Message != c.want {
					h.Errorf("error = %#v, want the child's %q", r.Err, c.want)
				}
				h.outcome(good, supervisor.Completed)
				if d := since(start); d > 0 {
					h.Errorf("it took %v of waiting", d)
				}
				h.state(a, supervisor.Ready)
			})
		})
	}
}

// A child that tells of an error and takes a second to wind up is not taken
// for one that refused: the next prompt waits until it is free.
func TestSlowFailureIsNoRefusal(t *testing.T) {
	plan := always(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		if p.ID != "1" {
			supervisortest.Echo(c, p)
			return
		}
		c.Emit(protocol.Error{ID: &p.ID, Message: "disk full"})
		c.Sleep(time.Second)
		c.Fail(p, "disk full")
	}})
	run(t, plan, func(h *house) {
		a := h.start("alice")
		first, second := h.prompt(a, "1", ""), h.prompt(a, "2", "x")
		start := time.Now()
		r := h.outcome(first, supervisor.Erred)
		if since(start) != time.Second || r.StopReason != protocol.StopError {
			h.Errorf("ended after %v with %q", since(start), r.StopReason)
		}
		h.outcome(second, supervisor.Completed)
	})
}

// A child that responds before the end of its turn refuses the next prompt while it
// still runs that one. That prompt ended never: the child was asked once whether it ran.
func TestRefusalAfterEarlyResponse(t *testing.T) {
	plan := always(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Respond(p, map[string]bool{"ok": true})
		c.Sleep(time.Minute)
		c.Finish(p, "")
	}})
	run(t, plan, func(h *house) {
		a := h.start("alice")
		early, next := h.prompt(a, "1", ""), h.prompt(a, "2", "")
		h.outcome(early, supervisor.Erred)
		r := h.outcome(next, supervisor.Erred)
		if e, ok := errors.AsType[*supervisor.ChildError](r.Err); !ok || e.Message != "another prompt is in flight" {
			h.Errorf("error = %v, want the child's", r.Err)
		}
	})
}

// A success without the end of its turn, or whose end says that the turn failed, is no success:
// a child that answered at once, and did nothing, had completed.
func TestSuccessWithoutAnEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		play func(c *supervisortest.Child, p protocol.Prompt)
		want string
	}{
		"no end":          {func(*supervisortest.Child, protocol.Prompt) {}, "without the agent_end of this turn"},
		"of another turn": {func(c *supervisortest.Child, _ protocol.Prompt) { c.Emit(protocol.AgentEnd{TurnID: "other"}) }, "without the agent_end of this turn"},
		"failed, unnamed": {func(c *supervisortest.Child, p protocol.Prompt) {
			c.Emit(protocol.AgentEnd{TurnID: p.ID, StopReason: protocol.StopError})
		}, "did not name"},
		"failed, and named": {func(c *supervisortest.Child, p protocol.Prompt) {
			c.Emit(protocol.Error{ID: &p.ID, Message: "no milk"})
			c.Emit(protocol.AgentEnd{TurnID: p.ID, StopReason: protocol.StopError})
		}, "no milk"},
	} {
		t.Run(name, func(t *testing.T) {
			play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
				c.Say("half")
				tt.play(c, p)
				c.Respond(p, map[string]bool{"ok": true})
			}}
			run(t, always(play), func(h *house) {
				r := h.outcome(h.prompt(h.start("alice"), "1", "x"), supervisor.Erred)
				if e, ok := errors.AsType[*supervisor.ChildError](r.Err); !ok || !strings.Contains(e.Message, tt.want) || r.Text != "half" {
					h.Errorf("%q, %v, want %s", r.Text, r.Err, tt.want)
				}
			})
		})
	}
}

func TestUnsendablePrompt(t *testing.T) {
	run(t, nil, func(h *house) {
		a := h.start("alice")
		r := h.outcome(h.prompt(a, "1", "\xff"), supervisor.Erred)
		if _, ok := errors.AsType[*supervisor.CommandError](r.Err); !ok {
			h.Errorf("error = %v, want *CommandError", r.Err)
		}
		h.outcome(h.prompt(a, "2", "x"), supervisor.Completed)
		if info := h.state(a, supervisor.Ready); info.Incarnation != 1 {
			h.Errorf("incarnation %d, want the first", info.Incarnation)
		}
	})
}

func TestReplay(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Sleep(time.Second)
		supervisortest.Echo(c, p)
	}}), func(h *house) {
		a := h.start("alice")
		first := h.prompt(a, "1", "hello")
		if joined := h.prompt(a, "1", "hello"); joined != first {
			h.Error("the same id did not join the turn that runs")
		}
		_, err := a.Prompt(h.Context(), protocol.Prompt{ID: "1", Message: "other"}, supervisor.PromptOptions{})
		if !errors.Is(err, supervisor.ErrTurnConflict) {
			h.Errorf("other content: %v, want ErrTurnConflict", err)
		}
		path := "/x"
		_, err = a.Prompt(h.Context(), protocol.Prompt{ID: "1", Message: "hello", Attachments: []protocol.Attachment{{Path: path}}}, supervisor.PromptOptions{})
		if !errors.Is(err, supervisor.ErrTurnConflict) {
			h.Errorf("other attachments: %v, want ErrTurnConflict", err)
		}
		if r := h.outcome(first, supervisor.Completed); r.Replayed {
			h.Error("the turn itself says that it is a replay")
		}
		r := h.outcome(h.prompt(a, "1", "hello"), supervisor.Completed)
		if !r.Replayed || r.Text != "hello" {
			h.Errorf("repeated: replayed %v, text %q", r.Replayed, r.Text)
		}
		if n := len(h.launcher.Child("alice").Messages()); n != 2 {
			h.Errorf("the child saw %d messages, want 2", n)
		}
	})
}

// The last 256 outcomes are remembered, their texts up to 1 MiB.
func TestReplayIsBounded(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Say(strings.Repeat("x", 10_000))
		c.Finish(p, "")
	}}), func(h *house) {
		a := h.start("alice")
		for i := range 300 {
			h.outcome(h.prompt(a, fmt.Sprint(i), ""), supervisor.Completed)
		}
		if r := h.outcome(h.prompt(a, "299", ""), supervisor.Completed); !r.Replayed || len(r.Text) != 10_000 {
			h.Errorf("the last: replayed %v, %d bytes", r.Replayed, len(r.Text))
		}
		if r := h.outcome(h.prompt(a, "150", ""), supervisor.Completed); !r.Replayed || r.Text != "" || !r.Truncated {
			h.Errorf("an older one: replayed %v, %d bytes, truncated %v", r.Replayed, len(r.Text), r.Truncated)
		}
		if r := h.outcome(h.prompt(a, "43", ""), supervisor.Completed); r.Replayed {
			h.Error("the 257th from the end is still remembered")
		}
	})
}

func TestDo(t *testing.T) {
	plan := always(supervisortest.Play{Command: func(c *supervisortest.Child, cmd protocol.Command) bool {
		switch cmd := cmd.(type) {
		case protocol.SetModel:
			c.Respond(cmd, map[string]any{"ok": false, "error": "no such model"})
		case protocol.Compact:
			c.Emit(protocol.Error{ID: &cmd.ID, Message: "not now"})
		case protocol.Ping:
			c.Crash(supervisor.Exit{Code: 3, Stderr: "oops"})
		case protocol.ToolsList:
			c.Respond(cmd, map[string]any{"ok": true})
		case protocol.NewSession: // never answered
		default:
			return false
		}
		return true
	}})
	run(t, plan, func(h *house) {
		a := h.start("alice")
		state, err := supervisor.Do(h.Context(), a, protocol.GetState{ID: "mine"})
		if err != nil || state.Streaming || state.SessionID != "session-alice" {
			h.Errorf("get_state = %+v, %v", state, err)
		}
		for _, c := range []struct {
			command string
			err     error
			want    string
		}{
			{"set_model", do(h.Context(), a, protocol.SetModel{Model: "x"}), "no such model"},
			{"compact", do(h.Context(), a, protocol.Compact{}), "not now"},
			{"tools_list", do(h.Context(), a, protocol.ToolsList{}), `the child's answer cannot be read: member "tools" is missing`},
		} {
			if e, ok := errors.AsType[*supervisor.ChildError](c.err); !ok || e.Message != c.want || e.Command != c.command {
				h.Errorf("%s: %#v, want the child's %q", c.command, c.err, c.want)
			}
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := supervisor.Do(h.Context(), a, protocol.NewSession{})
			waiting <- err
		}()
		synctest.Wait()
		_, err = supervisor.Do(h.Context(), a, protocol.Ping{})
		for _, err := range []error{err, <-waiting} {
			if e, ok := errors.AsType[*supervisor.CrashError](err); !ok || e.Exit.Code != 3 || e.Exit.Stderr != "oops" || e.Incarnation != 1 {
				h.Errorf("after the crash: %v", err)
			}
		}
		if _, err := supervisor.Do(h.Context(), a, protocol.GetState{}); err != nil { // waits for the restart
			h.Errorf("in backoff: %v", err)
		}
		h.state(a, supervisor.Ready)
	})
}
