package acpserve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

const (
	// openPatience bounds the wait for the events of an agent, without which a prompt is not sent.
	openPatience = 10 * time.Second
	// lastPatience bounds the wait for the last events of a turn whose result is there, and
	// firstPatience for the first ones.
	lastPatience  = 2 * time.Second
	firstPatience = 200 * time.Millisecond
	// cancelPatience bounds the call that cancels a turn.
	cancelPatience = 10 * time.Second
)

// prompt is session/prompt: it tells what the turn does, and returns when it has ended.
func (s *server) prompt(ctx context.Context, c *client.Client, t *turn, p promptParams) (promptResult, error) {
	if t == nil {
		return promptResult{}, &requestError{codeNotFound, fmt.Sprintf("session %.64q is not open: session/new or session/load opens one", p.SessionID)}
	}
	now, err := client.Do(ctx, c, t.of.id, api.GetContext, api.None{})
	if client.KindOf(err) == api.KindAgentNotFound { // the server was ended since, or the agent destroyed
		if err = wake(ctx, c, t.of.id); err == nil {
			now, err = client.Do(ctx, c, t.of.id, api.GetContext, api.None{})
		}
	}
	if err != nil {
		return promptResult{}, err
	}
	text, files, err := message(p.Prompt, now.Cwd)
	if err != nil {
		return promptResult{}, err
	}
	message := api.SendParams{
		Content: text, RequestID: &t.id, Source: new("acp"),
		OnDisconnect: new(api.OnDisconnectCancel), // also where this program is killed
	}
	if files != nil {
		message.Attachments = &files
	}
	s.tellNotice(t.of)
	r := &telling{s: s, c: c, turn: t, dir: now.Cwd, calls: map[string]*shownCall{}, questions: map[string]context.CancelFunc{}}
	result, err := r.run(ctx, message)
	if err != nil {
		return promptResult{}, err
	}
	if err := s.tellUsage(ctx, c, t.of); err != nil && ctx.Err() != nil {
		return promptResult{}, err
	}
	return promptResult{stopOf(result)}, nil
}

// stopOf is why a turn ended, in the words of the protocol.
func stopOf(r api.SendResult) string {
	switch {
	case r.Cancelled:
		return "cancelled"
	case r.StopReason == string(protocol.StopMaxIterations):
		return "max_turn_requests"
	case r.StopReason == string(protocol.StopMaxTokens):
		return "max_tokens"
	case r.StopReason == string(protocol.StopContentFilter):
		return "refusal"
	}
	return "end_turn"
}

// telling tells the editor what a turn does. It belongs to the goroutine of its prompt.
type telling struct {
	s    *server
	c    *client.Client
	turn *turn
	dir  string // the agent's

	begun, over bool                  // the turn has, as the events say
	said        int                   // bytes of text since it began
	message     int                   // counts the messages of the turn
	inText      bool                  // the last update was a piece of one
	calls       map[string]*shownCall // those without a result, by id
	compactions int

	asking    sync.WaitGroup                // questions to the editor
	questions map[string]context.CancelFunc // by request_id; what withdraws them
}

// run sends the message, and tells what comes of it.
func (r *telling) run(ctx context.Context, p api.SendParams) (result api.SendResult, err error) {
	following, leave := context.WithCancel(ctx)
	sending, drop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer r.asking.Wait()
	defer leave()
	defer drop()
	events := cli.Pump(following, &running, r.c.FollowAll(following, "", client.Filter{
		Types:  []string{"message_update", "turn_start", "turn_end", "session_update", "permission_request", "permission_end"},
		Agents: []string{r.turn.of.id}, ToolOutput: true,
	}))
	patience := time.NewTimer(openPatience)
	defer patience.Stop()
	select {
	case _, ok := <-events: // that they are open
		if !ok {
			return result, errors.New("the agent's events cannot be had")
		}
	case <-patience.C:
		return result, errors.New("the agent's events did not come in time")
	case <-r.turn.cancelled:
		return api.SendResult{Cancelled: true}, nil
	}
	below := cli.Pump(following, &running, r.c.FollowAll(following, "", client.Filter{Types: []string{"permission_request", "permission_end"}}))
	answered := make(chan error, 1)
	running.Go(func() {
		var err error
		result, err = client.Do(sending, r.c, r.turn.of.id, api.Send, p)
		answered <- err
	})
	cancelled := r.turn.cancelled
	for done := false; !done || !r.over; {
		select {
		case event, more := <-events:
			if !more {
				events, r.over = nil, true
				continue
			}
			r.happened(following, event)
		case event, more := <-below: // of all agents
			if !more {
				below = nil
			} else if event.Agent() != r.turn.of.id { // else it comes among the agent's other events
				r.happened(following, event)
			}
		case <-cancelled:
			cancelled = nil
			running.Go(func() { r.cancel(ctx, drop) })
		case err = <-answered:
			done = true
			patience.Reset(r.patience(err))
		case <-patience.C:
			r.over = r.over || done
		}
	}
	r.endCalls()
	if err == nil {
		r.rest(result)
	}
	select {
	case <-r.turn.cancelled:
		if err != nil && ctx.Err() == nil { // it was cancelled before it had begun
			return api.SendResult{Cancelled: true}, nil
		}
	default:
	}
	return result, err
}

// patience bounds the wait for events once there is a result, or an error.
func (r *telling) patience(err error) time.Duration {
	switch {
	case r.begun:
		return lastPatience
	case err != nil: // it did not come to a turn
		return 0
	}
	return firstPatience
}

// cancel cancels the turn. Where the server does not know it, the message is on its way: then drop
// leaves it, by which the server cancels it.
func (r *telling) cancel(ctx context.Context, drop context.CancelFunc) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
	defer stop()
	if result, err := client.Do(ctx, r.c, r.turn.of.id, api.Cancel, api.CancelParams{RequestID: r.turn.id}); err != nil || !result.Cancelled {
		drop()
	}
}

// happened tells of an event.
func (r *telling) happened(ctx context.Context, event client.Event) {
	decoded, err := event.Decode()
	if err != nil {
		return // one that is wrong in itself tells us nothing
	}
	switch e := decoded.(type) {
	case protocol.TurnStart:
		if r.begun = e.TurnID == r.turn.id || r.begun; r.begun {
			r.inText = false
		}
	case protocol.TurnEnd:
		r.over = r.over || e.TurnID == r.turn.id
	case protocol.MessageUpdate:
		if r.begun && !r.over { // one turn runs at a time
			r.step(e.Event)
		}
	case protocol.SessionUpdate:
		r.changed(ctx, e)
	case protocol.PermissionRequest:
		if e.TurnID == r.turn.id || event.Agent() != r.turn.of.id {
			r.ask(ctx, event.Agent(), e)
		}
	case protocol.PermissionEnd:
		if withdraw := r.questions[e.RequestID]; withdraw != nil {
			withdraw()
		}
	}
}

// changed tells of settings that somebody else has changed.
func (r *telling) changed(ctx context.Context, e protocol.SessionUpdate) {
	x := r.turn.of
	x.mu.Lock()
	same := e.Preset == x.told.basis && e.Provider+"/"+e.Model == x.told.model
	x.mu.Unlock()
	if same {
		return
	}
	if now, err := r.s.settings(ctx, r.c, x); err == nil { // else the editor shows what was
		r.s.tell(x, now)
	}
}

// rest tells what the events did not: a turn whose events were lost has its answer in the result.
func (r *telling) rest(result api.SendResult) {
	if text := protocol.Value(result.Content); r.said == 0 && text != "" {
		r.text("agent_message_chunk", text)
	}
}

// tellNotice tells what is to be told once.
func (s *server) tellNotice(x *session) {
	x.mu.Lock()
	notice := x.notice
	x.notice = noticeUpdate{}
	x.mu.Unlock()
	if notice.Title != "" && s.canShow().notices {
		s.peer.update(x.id, notice)
	}
}

func (s *server) canShow() shows {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shows
}

// tellUsage tells how full the context is, and what the conversation has cost.
func (s *server) tellUsage(ctx context.Context, c *client.Client, x *session) error {
	tokens, err := client.Do(ctx, c, x.id, api.GetTokens, api.None{})
	if err != nil {
		return err
	}
	used := usageUpdate{Kind: "usage_update", Used: tokens.Total, Size: tokens.Budget}
	now, err := client.Do(ctx, c, x.id, api.GetContext, api.None{})
	if err != nil {
		return err
	}
	if now.Cost != nil && *now.Cost > 0 {
		used.Cost = &cost{*now.Cost, "USD"}
	}
	s.peer.update(x.id, used)
	return nil
}
