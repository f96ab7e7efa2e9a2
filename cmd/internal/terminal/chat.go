package terminal

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
	"nexus.internal/protocol/ratelimit"
)

// What a chat tells the one that shows it.
type (
	// happened is the next event of an agent.
	happened struct {
		agent string
		event protocol.Event
		at    time.Time // zero of one that was before we came, or while we stood still: nobody knows when
	}
	// parted says that an agent's events come no more.
	parted struct {
		agent string
		err   error
	}
	// sent says what came of a message that was sent.
	sent struct {
		agent, id        string
		taken, cancelled bool // by the server; before or in its turn
		halted           bool // it was cancelled as its agent was stopped
		err              error
	}
	// wants says that a call waits for an approval, and settled that it does so no more.
	wants struct {
		agent   string
		request protocol.PermissionRequest
		told    bool // in full
	}
	settled struct{ agent, id string }
	// used is what an agent has used.
	used struct {
		agent  string
		tokens uint64
		cost   float64 // US dollars
		limits api.HeldLimits
	}
)

// telling takes what happens, from any goroutine.
type telling func(msg any)

// chat is the talk with agents of one server. Its goroutines end with close.
type chat struct {
	c    *client.Client
	tell telling

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	met     met
	halts   cli.Halts

	mu    sync.Mutex // guards the rest
	links map[string]*link
}

func newChat(ctx context.Context, c *client.Client, tell telling) *chat {
	ctx, stop := context.WithCancel(ctx)
	return &chat{c: c, tell: tell, ctx: ctx, stop: stop, links: map[string]*link{}}
}

// close ends all of it.
func (c *chat) close() {
	c.stop()
	c.running.Wait()
}

// broken says that something has panicked beside whoever shows the talk: they alone can give the terminal back.
type broken struct {
	what  any
	stack []byte
}

func (b broken) String() string { return fmt.Sprintf("%v\n\n%s", b.what, b.stack) }

// goes runs f beside all else, until close.
func (c *chat) goes(f func()) {
	c.running.Go(func() {
		defer func() {
			if what := recover(); what != nil {
				c.tell(broken{what, debug.Stack()})
			}
		}()
		f()
	})
}

// openPatience bounds the wait for a stream of events.
const openPatience = 10 * time.Second

// link is the stream of one agent's events.
type link struct {
	leave   context.CancelFunc
	opened  chan struct{} // closed when the stream is there, or cannot be had
	shown   chan struct{} // closed when the agent is shown: its events wait for that
	isShown sync.Once
}

// attach opens the stream of an agent's events, and returns when it is there. They are told once show was
// called.
func (c *chat) attach(agent string, from position) {
	c.mu.Lock()
	l := c.links[agent]
	if l == nil {
		ctx, leave := context.WithCancel(c.ctx)
		l = &link{leave: leave, opened: make(chan struct{}), shown: make(chan struct{})}
		c.links[agent] = l
		c.goes(func() { c.follow(ctx, l, agent, from) })
	}
	c.mu.Unlock()
	patience := time.NewTimer(openPatience)
	defer patience.Stop()
	select {
	case <-l.opened:
	case <-patience.C:
	case <-c.ctx.Done():
	}
}

// show has the events of an agent told.
func (c *chat) show(agent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.links[agent]; l != nil {
		l.isShown.Do(func() { close(l.shown) })
	}
}

// follow tells the events of an agent until ctx ends.
func (c *chat) follow(ctx context.Context, l *link, agent string, from position) {
	opened := sync.OnceFunc(func() { close(l.opened) })
	defer opened()
	gone, moments := false, cli.Moments{C: c.c, Agent: agent, Halts: &c.halts, Past: from.seen}
	for event, err := range c.c.FollowAll(ctx, from.after, client.Filter{Agents: []string{agent}, ToolOutput: true}) {
		if event.Type == "open" {
			opened()
			continue
		}
		select {
		case <-l.shown:
		case <-ctx.Done():
			return
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.tell(parted{agent, err})
			return
		}
		decoded, err := event.Decode()
		if err != nil {
			continue // one that is wrong in itself tells us nothing
		}
		if _, gone = decoded.(protocol.AgentRemoved); gone {
			break
		}
		c.tell(happened{agent, decoded, moments.Of(ctx, event)})
	}
	if ctx.Err() == nil {
		c.tell(parted{agent: agent})
	}
}

// detach ends that.
func (c *chat) detach(agent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.links[agent]; l != nil {
		l.leave()
		delete(c.links, agent)
	}
}

// send sends a message, until a server is there; sent tells what came of it. The channel has nil once the server has
// taken the message, which a stream says before the turn begins, and the error of the whole, or nil, in the end.
func (c *chat) send(m message) <-chan error {
	known := make(chan error, 2)
	p := api.SendParams{Content: m.text, RequestID: &m.id, WhenBusy: &m.whenBusy, Attachments: m.attached}
	c.goes(func() {
		taken := false
		told := func(jsontext.Value) error {
			if !taken {
				taken = true
				known <- nil
			}
			return nil
		}
		result, err := c.c.CallStream(c.ctx, m.agent, api.Send.Name, p, told)
		for errors.Is(err, client.ErrNoServer) && ratelimit.Sleep(c.ctx, unbegunPatience) == nil {
			result, err = c.c.CallStream(c.ctx, m.agent, api.Send.Name, p, told) // what comes next waits for this one
		}
		known <- err
		if c.ctx.Err() == nil {
			c.tell(sent{agent: m.agent, id: m.id, taken: taken, cancelled: gjson.GetBytes(result, "cancelled").Bool(), err: err})
		}
	})
	return known
}

// later tells, after a while, what comes of w.
func (c *chat) later(after time.Duration, w work) {
	c.goes(func() {
		if ratelimit.Sleep(c.ctx, after) == nil {
			c.tell(w())
		}
	})
}

// ended says also whether the message was cancelled as its agent was stopped or destroyed, as far as our key tells.
func (c *chat) ended(m sent) sent {
	if m.cancelled {
		of := c.about(m.agent)
		m.halted = halted(of.State) || of.listed && of.AgentID == ""
	}
	return m
}

// halted reports whether that is the state of an agent that was stopped.
func halted(state string) bool { return state == "stopping" || state == "stopped" }

// about is what the server knows of an agent, and its limits. None of it asks the agent's process, nor
// brings one back that is gone.
type about struct {
	api.AgentInfo
	limits api.HeldLimits
	listed bool // the server has said which agents there are
}

func (c *chat) about(agent string) (a about) {
	all, err := client.Do(c.ctx, c.c, "", api.ListAgents, api.None{})
	if err != nil {
		return a // a key for the one agent lists none
	}
	a.listed = true
	for _, one := range all.Agents {
		if one.AgentID == agent {
			a.AgentInfo = one
		}
	}
	if a.AgentID != "" {
		if held, err := client.Do(c.ctx, c.c, agent, api.GetLimits, api.None{}); err == nil {
			a.limits = held.Limits
		}
	}
	return a
}

// usage tells what an agent has used.
func (c *chat) usage(agent string) {
	c.goes(func() {
		if a := c.about(agent); a.AgentID != "" && c.ctx.Err() == nil {
			c.tell(usedBy(a))
		}
	})
}

func usedBy(a about) used {
	return used{a.AgentID, protocol.Value(a.TokensUsed), protocol.Value(a.CostUsed), a.limits}
}

// cancel cancels a turn.
func (c *chat) cancel(agent, id string) error {
	_, err := client.Do(c.ctx, c.c, agent, api.Cancel, api.CancelParams{RequestID: id})
	return err
}

// approvals has the calls told that wait for an approval, of these agents, or of all: whose they are is for
// whoever shows them to say. A key that may not see all agents has to name its one.
func (c *chat) approvals(agents ...string) {
	c.goes(func() {
		only := client.Filter{Agents: agents, Types: []string{"permission_request", "permission_end"}}
		for event, err := range c.c.FollowAll(c.ctx, "", only) {
			if err != nil {
				return
			}
			if event.Type == "open" {
				c.waiting(agents)
				continue
			}
			decoded, err := event.Decode()
			if err != nil {
				continue
			}
			switch e := decoded.(type) {
			case protocol.PermissionRequest:
				c.tell(wants{agent: event.Agent(), request: e})
			case protocol.PermissionEnd:
				c.tell(settled{event.Agent(), e.RequestID})
			}
		}
	})
}

// waiting tells what waits already, of these agents, or of all.
func (c *chat) waiting(agents []string) {
	for _, agent := range agents {
		now, _ := client.Do(c.ctx, c.c, agent, api.GetPermissions, api.None{}) // without an answer there is nothing to tell
		for _, request := range now.Pending {
			c.tell(wants{agent: agent, request: request})
		}
	}
	if agents != nil {
		return
	}
	all, err := client.Do(c.ctx, c.c, "", api.ListAgents, api.None{})
	if err != nil {
		return
	}
	for _, one := range all.Agents {
		for _, request := range one.Pending {
			c.tell(wants{agent: one.AgentID, request: request})
		}
	}
}

// answer decides on a call.
func (c *chat) answer(agent, id string, decision protocol.Decision, reason string) error {
	p := api.RespondPermissionParams{RequestID: id, Decision: decision}
	if reason != "" {
		p.Reason = &reason
	}
	_, err := client.Do(c.ctx, c.c, agent, api.RespondPermission, p)
	return err
}

// history is the end of an agent's conversation: at most that many messages of people and the
// agent.
func (c *chat) history(agent string, most uint64) ([]api.Message, error) {
	first, err := client.Do(c.ctx, c.c, agent, api.GetMessages, api.GetMessagesParams{Limit: new(uint64(1))})
	if err != nil || first.Total == 0 {
		return nil, err
	}
	page, err := client.Do(c.ctx, c.c, agent, api.GetMessages, api.GetMessagesParams{
		Offset: new(first.Total - min(first.Total, most)), Limit: &most,
	})
	return page.Messages, err
}
