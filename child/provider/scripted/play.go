package scripted

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
	"nexus.internal/protocol/scenario"
)

// played is an error as a service would report it: no log has its words.
func played(err error) *provider.Error {
	return &provider.Error{Brief: "the scenario has an error here", Err: err}
}

func playedOf(e scenario.Error) error {
	err := errors.New(e.Message)
	if e.ContextWindow {
		err = fmt.Errorf("%s: %w", e.Message, provider.ErrContextWindow)
	}
	failure := played(err)
	failure.Reason, failure.RetryAfter = e.Reason, time.Duration(e.RetryAfterMS)*time.Millisecond
	return failure
}

// errPlayed is the error of a prompt for which the scenario has no turn left.
var errPlayed = errors.New("the scenario has no turn left for this prompt")

// script is a scenario that is played.
type script scenario.File

// play answers the request with the part of the scenario that is due. Which
// one that is follows from the messages alone.
func (s *script) play(w *answerWriter, r provider.Request) {
	user := lastUser(r.Messages)
	if user < 0 {
		w.fail(errPlayed)
		return
	}
	due := w.memory.read(r.Messages).position.due
	switch {
	case due == nil && s.After == "offline":
		answer(w, r)
		return
	case due == nil:
		w.fail(errPlayed)
		return
	}
	answered := 0
	for _, m := range r.Messages[user+1:] {
		if m.Role == protocol.RoleAssistant && len(m.ToolCalls) > 0 {
			answered++
		}
	}
	parts := split(due.Steps)
	if answered >= len(parts) {
		return // the tools were all that was asked for
	}
	calls := 0
	for _, st := range parts[answered] {
		if w.ended {
			return
		}
		if st.Tool != nil {
			w.call(w.nextCall(r.Messages, calls), st.Tool.Name, st.Tool.Input)
			calls++
			continue
		}
		playStep(w, st)
	}
}

// position is where in a scenario a conversation has got to.
type position struct {
	due     *scenario.Turn // of the last message that a user wrote; nil for none
	inOrder int            // of the user's messages so far that no match picked
}

// next moves on by one message.
func (s *script) next(p position, m protocol.Message) position {
	if m.Role != protocol.RoleUser {
		return p
	}
	if p.due = s.matching(m.Content); p.due == nil {
		p.due = s.ordered(p.inOrder)
		p.inOrder++
	}
	return p
}

func (s *script) matching(content string) *scenario.Turn {
	for i, t := range s.Turns {
		if t.Match != nil && strings.Contains(content, *t.Match) {
			return &s.Turns[i]
		}
	}
	return nil
}

// ordered is the nth of the turns without a match, nil if there is none.
func (s *script) ordered(n int) *scenario.Turn {
	var plain []*scenario.Turn
	for i, t := range s.Turns {
		if t.Match == nil {
			plain = append(plain, &s.Turns[i])
		}
	}
	switch {
	case n < len(plain):
		return plain[n]
	case s.After == "repeat" && len(plain) > 0:
		return plain[n%len(plain)]
	default:
		return nil
	}
}

// split cuts steps into answers: each ends with the last of the tool calls that
// stand side by side, because what follows needs their results.
func split(steps []scenario.Step) [][]scenario.Step {
	var parts [][]scenario.Step
	start := 0
	for i, st := range steps {
		if st.Tool != nil && (i+1 == len(steps) || steps[i+1].Tool == nil) {
			parts = append(parts, steps[start:i+1])
			start = i + 1
		}
	}
	if start < len(steps) {
		parts = append(parts, steps[start:])
	}
	return parts
}

// playStep carries out any step but a tool call.
func playStep(w *answerWriter, s scenario.Step) {
	var pause time.Duration
	if s.EveryMS != nil {
		pause = time.Duration(*s.EveryMS) * time.Millisecond
	}
	switch {
	case s.Text != nil:
		w.say(*s.Text, pause)
	case s.Thinking != nil:
		w.think(*s.Thinking, pause)
	case s.DelayMS != nil:
		w.wait(time.Duration(*s.DelayMS) * time.Millisecond)
	case s.Flood != nil:
		playFlood(w, *s.Flood, pause)
	case s.Retry != nil:
		w.emit(provider.Retry{Reason: *s.Retry, Attempt: 2, MaxAttempts: 2})
	case s.Usage != nil:
		w.usage = s.Usage
	case s.Stderr != nil:
		fmt.Fprintln(os.Stderr, *s.Stderr)
	case s.Error != nil:
		w.fail(playedOf(*s.Error))
	case s.Hang != nil && *s.Hang == "deaf":
		select {} // only the end of the process ends it
	case s.Hang != nil:
		<-w.ctx.Done()
		w.fail(w.ctx.Err())
	case s.Exit != nil:
		os.Exit(int(*s.Exit))
	case s.Crash != nil:
		crash(*s.Crash)
	}
}

func playFlood(w *answerWriter, f scenario.Flood, pause time.Duration) {
	text := strings.Repeat("x", int(f.Bytes)-1) + " "
	for i := range f.Count {
		if i > 0 && !w.wait(pause) {
			return
		}
		w.bytes += len(text)
		if !w.emit(provider.Text{Text: text}) {
			return
		}
	}
}

// crash brings the process down and does not return. The panic is in a
// goroutine of its own, so that nobody recovers it.
func crash(how string) {
	if how == "kill" {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
	} else {
		go panic("the scenario asked for a panic")
	}
	select {}
}
