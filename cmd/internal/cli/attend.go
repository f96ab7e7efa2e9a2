package cli

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

const (
	// eventsPatience bounds the wait for the events of an agent, without which a send is not attended.
	eventsPatience = 2 * time.Second
	// endPatience bounds the wait for the last events of a turn whose result is there, and beginPatience
	// for the first ones: there are none of a turn that had ended before.
	endPatience   = time.Second
	beginPatience = 200 * time.Millisecond
	// askAgain is how long nothing is written below a question before it is asked again.
	askAgain = time.Second
	// shownResult is how many lines of a call's result are shown.
	shownResult = 5
)

// attended is a send in front of a person: what its turn calls is shown, and the person is asked
// for approvals. It belongs to one goroutine.
type attended struct {
	a         *App
	c         *client.Client
	agent, id string // of the agent and of the request
	person    *person
	moments   Moments
	at        time.Time // when the event was that is shown; zero if nobody knows

	text    *answer
	turn    string // the turn that runs; "" for none that we know of
	begun   bool   // ours has
	told    bool   // the end of ours
	called  bool   // a tool, since there was text
	calls   map[string]shownCall
	waiting []asked   // requests without an answer; the first one is asked
	asks    *question // nil for none
	reason  bool      // that is for the reason of a denial
	covered bool      // something was written below the question
}

// shownCall is a call that runs.
type shownCall struct {
	name  string
	began time.Time
}

// attend sends a message. ok is false if the agent's events are not to be had: nothing was sent then.
func (s *attended) attend(ctx context.Context, p api.SendParams) (result api.SendResult, ok bool, broken, err error) {
	s.text, s.calls = &answer{out: s.a.out}, map[string]shownCall{}
	following, leave := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer leave()
	halts := new(Halts)
	s.moments = Moments{C: s.c, Agent: s.agent, Halts: halts}
	running.Go(func() { halts.Watch(following) })
	events := Pump(following, &running, s.c.FollowAll(following, "", client.Filter{
		Types: []string{"message_update", "turn_start", "turn_end", "permission_request", "permission_end"}, Agents: []string{s.agent},
	}))
	patience := time.NewTimer(eventsPatience)
	defer patience.Stop()
	select {
	case _, ok = <-events: // that they are open
	case <-patience.C:
	}
	if !ok {
		return result, false, nil, nil
	}
	below := Pump(following, &running, s.c.FollowAll(following, "", client.Filter{Types: []string{"permission_request", "permission_end"}}))
	s.tellBusy(ctx, p.WhenBusy)
	s.askAll(ctx, true)
	answered := make(chan error, 1)
	running.Go(func() {
		var err error
		result, err = client.Do(ctx, s.c, s.agent, api.Send, p)
		answered <- err
	})
	defer s.unask(false)
	again := time.NewTimer(askAgain)
	defer again.Stop()
	for over := false; !over || !s.told; {
		if s.covered {
			again.Reset(askAgain)
		}
		select {
		case <-again.C:
			s.uncover()
		case event, more := <-events:
			if !more {
				events, s.told = nil, true
				continue
			}
			s.happened(ctx, event)
		case event, more := <-below: // of all agents
			switch {
			case !more:
				below = nil
			case event.Type == "open":
				s.askAll(ctx, false)
			case event.Agent() != s.agent: // else it comes among the agent's other events
				s.happened(ctx, event)
			}
		case line, more := <-s.asks.line():
			s.decide(ctx, line, more)
		case err = <-answered:
			over = true
			patience.Reset(s.endPatience(err))
		case <-patience.C:
			s.told = s.told || over
		}
	}
	if err == nil && s.text.complete(result) != nil { // the events were not all there
		s.text.restart()
		err = s.text.complete(result)
	}
	return result, true, s.text.end(), err
}

// endPatience bounds the wait for events of our turn once its result, or an error, is there.
func (s *attended) endPatience(err error) time.Duration {
	switch {
	case s.begun:
		return endPatience
	case err != nil: // it did not come to a turn
		return 0
	default:
		return beginPatience
	}
}

// tellBusy says that the message has to wait, if it has.
func (s *attended) tellBusy(ctx context.Context, whenBusy *string) {
	if whenBusy != nil && *whenBusy != "queue" {
		return
	}
	all, _ := client.Do(ctx, s.c, "", api.ListAgents, api.None{}) // a key for the agent alone lists none
	for _, one := range all.Agents {
		if one.AgentID == s.agent && one.State == "busy" {
			s.note(s.agent + " is at work: the message waits for its turn")
		}
	}
}

// Pump passes events on, from a goroutine of running, until ctx ends or they do.
func Pump(ctx context.Context, running *sync.WaitGroup, events iter.Seq2[client.Event, error]) <-chan client.Event {
	out := make(chan client.Event)
	running.Go(func() {
		defer close(out)
		for event, err := range events {
			if err != nil {
				return
			}
			select {
			case out <- event:
			case <-ctx.Done():
				return
			}
		}
	})
	return out
}

// happened shows an event of the agent, if it is one of our turn, and has the person asked about a request
// of any agent.
func (s *attended) happened(ctx context.Context, event client.Event) {
	decoded, err := event.Decode()
	if err != nil {
		return // one that is wrong in itself tells us nothing
	}
	if event.Agent() == s.agent {
		s.at = s.moments.Of(ctx, event)
	}
	switch e := decoded.(type) {
	case protocol.TurnStart:
		s.turn = e.TurnID
		s.begun = s.begun || s.turn == s.id
		if s.turn == s.id && e.Attempt > 1 {
			s.text.restart()
			s.called = false
			s.note("the agent crashed; the answer begins anew")
		}
	case protocol.TurnEnd:
		s.told = s.told || e.TurnID == s.id
		if e.TurnID == s.turn { // else it was one that waited
			s.turn = ""
		}
	case protocol.MessageUpdate:
		if s.turn == s.id {
			s.step(e.Event)
		}
	case protocol.PermissionRequest:
		s.ask(ctx, asked{event.Agent(), e})
	case protocol.PermissionEnd:
		s.settle(e)
	}
}

// step shows a step of our turn.
func (s *attended) step(event protocol.AssistantEvent) {
	switch e := event.(type) {
	case protocol.TextDelta:
		if s.called && e.Delta != "" {
			s.called = false
			s.text.after("\n\n") // as the server puts them together
		}
		s.cover()
		s.text.add(e.Delta)
	case protocol.ToolcallStart:
		s.called = s.text.length > 0
		s.calls[e.ToolID] = shownCall{e.ToolName, s.at}
	case protocol.ToolcallInput:
		s.line("○ " + strings.TrimRight(s.calls[e.ToolID].name+" "+MainInput(e.Input, s.person.width()), " "))
	case protocol.ToolcallResult:
		s.result(e)
	case protocol.Retry:
		s.note(fmt.Sprintf("the model's service failed (%s): try %d of %d in %v", e.Reason, e.Attempt, e.MaxAttempts, time.Duration(e.WaitMS)*time.Millisecond))
	case protocol.Fallback:
		s.note("asking " + e.Model + " instead: " + e.Reason)
	}
}

// result shows how a call ended, and the beginning of its result.
func (s *attended) result(e protocol.ToolcallResult) {
	call := s.calls[e.ToolID]
	delete(s.calls, e.ToolID)
	head := "● " + cmp.Or(call.name, "tool")
	if e.IsError {
		head = "✗ " + cmp.Or(call.name, "tool") + " failed"
	}
	if !call.began.IsZero() && !s.at.IsZero() {
		head += fmt.Sprintf(" (%.1f s)", s.at.Sub(call.began).Seconds())
	}
	s.line(head)
	all := strings.Split(strings.TrimRight(e.Result, "\n"), "\n")
	for i, text := range all {
		if i == shownResult && len(all) > shownResult+1 {
			s.line(fmt.Sprintf("  … %s more", Counted(len(all)-i, "line")))
			break
		}
		if text != "" {
			s.line("  " + firstOf(text, s.person.width()))
		}
	}
}

// line writes a line about a call to stderr, on a line of its own.
func (s *attended) line(text string) {
	s.cover()
	s.text.newline()
	s.a.errs.styled(faint, text)
}

func (s *attended) note(text string) {
	s.cover()
	s.text.newline()
	s.a.note("%s", text)
}

// cover ends the line of the question, if one is asked: what is written next is no part of it.
func (s *attended) cover() {
	if s.asks != nil && !s.covered {
		s.covered = true
		_ = s.a.Eprintf("\n")
	}
}

// uncover asks a question again below what was written.
func (s *attended) uncover() {
	if s.covered {
		s.covered = false
		s.text.newline()
		fmt.Fprint(s.a.errs, s.asks.text)
	}
}

// MainInput is the member of a call's input that tells most, else the whole: its first line, of at
// most that many characters.
func MainInput(input []byte, most int) string {
	for _, member := range []string{"command", "path", "pattern", "url", "agent_id", "job", "to", "query"} {
		if value := gjson.GetBytes(input, member); value.Type == gjson.String && value.Str != "" {
			return firstOf(value.Str, most)
		}
	}
	if len(input) <= len("{}") {
		return ""
	}
	return firstOf(string(input), most)
}

// askAll has the person asked about what waits already: of our agent, or else of all others. Ours is asked
// before its turn begins: from then on its requests come among its other events, in their order.
func (s *attended) askAll(ctx context.Context, ours bool) {
	agent := ""
	if ours {
		agent = s.agent
	}
	now, _, _ := pending(ctx, s.c, agent) // where it fails, the request is answered elsewhere
	for _, one := range now {
		if ours == (one.AgentID == s.agent) {
			s.ask(ctx, one)
		}
	}
}

// settle drops a request that needs no answer any more.
func (s *attended) settle(e protocol.PermissionEnd) {
	i := slices.IndexFunc(s.waiting, func(one asked) bool { return one.RequestID == e.RequestID })
	if i < 0 {
		return
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	if i == 0 && s.asks != nil {
		s.unask(false)
		s.note(e.RequestID + " was " + e.Outcome)
	}
	s.next()
}

// ask has the person asked, once those before are answered, if the agent that asks is ours or was
// created by it.
func (s *attended) ask(ctx context.Context, one asked) {
	known := slices.ContainsFunc(s.waiting, func(other asked) bool { return other.RequestID == one.RequestID })
	if known || !IsBelow(ctx, s.c, one.AgentID, s.agent) {
		return
	}
	s.waiting = append(s.waiting, one)
	s.next()
}

// IsBelow reports whether an agent is the one above, or was created by it or by one that it created.
func IsBelow(ctx context.Context, c *client.Client, agent, above string) bool {
	if agent == above {
		return true
	}
	all, _ := client.Do(ctx, c, "", api.ListAgents, api.None{}) // a key for the agent alone lists none
	return CreatorsOf(all.Agents).Below(agent, above)
}

// Creators has for each agent the one that created it; "" for none.
type Creators map[string]string

// CreatorsOf are those of all agents there are.
func CreatorsOf(all []api.AgentInfo) Creators {
	by := Creators{}
	for _, one := range all {
		by[one.AgentID] = protocol.Value(one.ParentAgentID)
	}
	return by
}

// Below reports whether an agent is the one above, or was created by it or by one that it created.
func (by Creators) Below(agent, above string) bool {
	for range len(by) {
		if agent == above {
			break
		}
		agent = by[agent]
	}
	return agent == above
}

// next asks about the first request that waits, if nothing is asked.
func (s *attended) next() {
	if s.asks != nil || len(s.waiting) == 0 {
		return
	}
	s.text.newline()
	_ = s.a.Eprintf("%s waits for an approval:\n  %s", s.waiting[0].AgentID, s.waiting[0].describe()) // there is no other place to say that it fails
	s.askFirst("allow it?")
}

// askFirst asks for an answer to the first request.
func (s *attended) askFirst(text string) {
	text += " y once, "
	if slices.Contains(s.waiting[0].Decisions, protocol.AllowSession) {
		text += "s for the session, "
	}
	if s.asks = s.person.ask(text + "n no, n REASON tells the model why: "); s.asks == nil {
		s.leave()
	}
}

// leave leaves the first request for somebody else to answer, and asks about the next one.
func (s *attended) leave() {
	one := s.waiting[0]
	s.waiting = s.waiting[1:]
	s.note(s.a.howToAnswer(one))
	s.next()
}

// decide takes what the person answered; without an answer the request waits for somebody else's.
func (s *attended) decide(ctx context.Context, line string, more bool) {
	one, reasons := s.waiting[0], s.reason
	s.unask(more)
	answer, ok := AnswerOf(line, one.PermissionRequest)
	if reasons {
		answer, ok = Answer{Decision: protocol.Deny, Reason: strings.TrimSpace(line), Offered: true}, true
	}
	p := api.RespondPermissionParams{RequestID: one.RequestID, Decision: answer.Decision}
	if answer.Reason != "" {
		p.Reason = &answer.Reason
	}
	switch {
	case !more:
		s.leave()
	case ok && answer.Asks && answer.Offered:
		if s.asks = s.person.ask("the reason, for the model: "); s.asks == nil {
			s.leave()
			return
		}
		s.reason = true
	case ok && answer.Offered:
		s.waiting = s.waiting[1:]
		if _, err := client.Do(ctx, s.c, one.AgentID, api.RespondPermission, p); err != nil {
			s.note(err.Error())
		}
		s.next()
	default:
		s.askFirst("one of these:")
	}
}

// unask asks no more. Behind a question without an answer the line is ended.
func (s *attended) unask(answered bool) {
	if s.asks == nil {
		return
	}
	s.asks.drop()
	s.reason = false
	if s.asks = nil; !answered && !s.covered {
		_ = s.a.Eprintf("\n")
	}
	s.covered = false
}

// goesOn asks whether a turn that was halted at its limit of model calls is to go on.
func (s *attended) goesOn() bool {
	s.asks = s.person.ask("the turn was halted at its limit of model calls: go on? y/n ")
	if s.asks == nil {
		return false
	}
	line, more := <-s.asks.line()
	s.unask(more)
	word := strings.ToLower(strings.TrimSpace(line))
	return word == "y" || word == "yes"
}
