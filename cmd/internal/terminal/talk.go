package terminal

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
	"nexus.internal/protocol/ratelimit"
)

// historyShown is how many messages of a conversation are shown to whoever comes to it.
const historyShown = 20

// work is done away from the loop that shows things; what it returns goes to talk.handle.
type work func() any

// What work returns.
type (
	// said are lines to be shown.
	said []string
	// arrived says that an agent is talked to from now on; lines are shown before.
	arrived struct {
		agent   string
		lines   []string
		created bool // by us, temporarily
		info    api.AgentInfo
	}
	// unsent is sent, a moment later: of a message whose turn was not told by then.
	unsent sent
	// renamed says that the agent that is talked to has another name.
	renamed arrived
	// stays are lines about an agent that keeps its name.
	stays []string
	// lobby says that nobody is talked to any more.
	lobby []string
	// ended says that the talk is over.
	ended []string
	// asks is a question.
	asks question
)

// answering is what follows an answer.
type answering func(text string) work

// question is answered by a line, or by a key.
type question struct {
	text   string
	yes    work      // of a question that y answers; nil for one that takes a line
	answer answering // of one that takes a line
	keys   string    // keys that answer it at once; "" for lines
}

// talk is the conversation of a person: with one agent, and in whisper mode with another one
// beside it. It belongs to one goroutine; only what work does runs elsewhere.
type talk struct {
	ctx   context.Context
	chat  *chat
	c     *client.Client
	o     Options
	agent string
	aside *aside          // beginWhispering mode: the agent that is returned to; nil for none
	met   map[string]bool // the agents that were talked to; whether they were created here

	shown    transcript
	queued   []message         // ours that have not begun; the first one is on its way
	own      map[string]string // the texts of those whose turn was not told, by id
	requests []wants
	question *question
	moving   string // the agent whose name is about to end; "" for none

	state       string
	incarnation uint64
	cost        float64 // of the turns that were shown, in US dollars
	update      protocol.SessionUpdate
	over        bool
	holding     bool // what somebody else has said is not known yet
	held        []protocol.Event
	failed      atomic.Bool  // there was nothing to talk to
	width       atomic.Int64 // of the terminal
}

// aside is an agent that is not shown for a while.
type aside struct {
	agent  string
	shown  transcript
	events []protocol.Event // what it has done meanwhile, the last of it

	state       string
	incarnation uint64
	update      protocol.SessionUpdate
}

// maxAside is how many events of such an agent are kept.
const maxAside = 10_000

// message is one that waits for its turn. Only the first one is at the server, so that they come in
// their order.
type message struct {
	agent, id, text, whenBusy string
	attached                  *[]protocol.Attachment
	sent                      bool
}

func newTalk(ctx context.Context, c *client.Client, o Options, tell telling) *talk {
	return &talk{
		ctx: ctx, c: c, o: o, chat: newChat(ctx, c, tell), met: map[string]bool{}, own: map[string]string{},
		shown: transcript{look: look{plain: o.Plain, verbose: o.Verbose}, now: time.Now},
	}
}

// look is how things are shown; from any goroutine.
func (t *talk) look() look { return look{int(t.width.Load()), t.o.Plain, t.o.Verbose} }

// resize takes the terminal's width.
func (t *talk) resize(width int) {
	t.width.Store(int64(width))
	t.shown.look = t.look()
}

// begin begins to talk to an agent. It is work.
func (t *talk) begin(agent string, created bool) work {
	return func() any {
		lines := []string{}
		if loaded, err := client.Do(t.ctx, t.c, "", api.LoadSession, api.LoadSessionParams{SessionName: &agent}); err == nil && loaded.NarrowedFrom != "" {
			lines = append(lines, t.look().note(agent+" is trusted: "+loaded.NarrowedFrom+" cannot be granted over RPC"))
		}
		t.chat.attach(agent)
		messages, err := t.chat.history(agent, historyShown)
		if err != nil {
			return t.fail(err)
		}
		for _, m := range messages {
			lines = append(lines, pastMessage(t, m)...)
		}
		return arrived{agent, lines, created, t.infoOf(agent)}
	}
}

// infoOf is what the server knows of an agent, without asking its process.
func (t *talk) infoOf(agent string) (info api.AgentInfo) {
	if all, err := client.Do(t.ctx, t.c, "", api.ListAgents, api.None{}); err == nil {
		for _, a := range all.Agents {
			if a.AgentID == agent {
				return a
			}
		}
	}
	return info
}

// pastMessage is a message that was said before we came.
func pastMessage(t *talk, m api.Message) []string {
	switch m.Role {
	case protocol.RoleUser:
		return t.look().asked("you", m.Content)
	case protocol.RoleAssistant:
		lines := t.look().answer(m.Content)
		for _, c := range m.ToolCalls {
			lines = append(lines, t.look().style(dim, t.look().sign("● ")+cli.Harmless(c.Name, true)+" "+inputOf(c.Name, c.Input)))
		}
		return lines
	default:
		return nil
	}
}

// handle takes what has happened, and returns lines to show, and work to do.
func (t *talk) handle(msg any) (lines []string, more work) {
	switch m := msg.(type) {
	case happened:
		if m.agent == t.agent {
			return t.happened(m.event)
		}
		if a := t.aside; a != nil && a.agent == m.agent {
			if len(a.events) == maxAside {
				a.events = append(a.events[:0], protocol.Gap{}) // what is told of it is its last words
			}
			a.events = append(a.events, m.event)
		}
	case parted:
		return t.parted(m)
	case sent:
		t.chat.later(unsentPatience, unsent(m)) // its turn may not have been told yet
	case unsent:
		if t.waits(m.id) != nil {
			t.forget(m.id)
			if m.err != nil {
				delete(t.own, m.id)
				return []string{t.look().problem(cli.Harmless(m.err.Error(), true))}, nil
			}
		}
	case wants:
		talked := t.talked()
		return nil, func() any {
			for _, agent := range talked {
				if t.chat.isBelow(m.agent, agent) {
					return ours(m)
				}
			}
			return nil
		}
	case ours:
		return t.asked(wants(m)), nil
	case settled:
		t.settle(m.id)
	case said:
		return m, nil
	case overheard:
		return t.release(m)
	case arrived:
		return t.arrive(m), nil
	case stays:
		t.moving = ""
		return m, nil
	case renamed:
		t.moving = ""
		m.lines = append(t.shown.flush(), m.lines...)
		return t.arrive(arrived(m)), nil
	case asks:
		t.question = (*question)(&m)
		if t.o.Plain {
			return []string{m.text}, nil
		}
	case whispers:
		return beginWhisper(t, m), nil
	case resend:
		t.send(string(m), false, nil)
	case lobby:
		t.moving = ""
		t.leave()
		return m, t.enterLobby
	case ended:
		t.over = true
		return append(t.shown.flush(), m...), nil
	}
	return nil, nil
}

// unsentPatience is how long a message whose answer is there waits for its turn to be told.
const unsentPatience = 200 * time.Millisecond

// ours is a request that the person is asked about.
type ours wants

// waits is a message of ours that has not begun; nil for another.
func (t *talk) waits(id string) *message {
	for i := range t.queued {
		if t.queued[i].id == id {
			return &t.queued[i]
		}
	}
	return nil
}

// forget drops a message of ours that waits no more, and sends the next one.
func (t *talk) forget(id string) {
	t.queued = slices.DeleteFunc(t.queued, func(m message) bool { return m.id == id })
	if len(t.queued) > 0 && !t.queued[0].sent {
		m := &t.queued[0]
		m.sent = true
		t.chat.send(m.agent, m.id, m.text, m.whenBusy, m.attached)
	}
}

func (t *talk) settle(id string) {
	for i, r := range t.requests {
		if r.request.RequestID == id {
			t.requests = append(t.requests[:i:i], t.requests[i+1:]...)
			return
		}
	}
}

// happened takes an event of the agent.
func (t *talk) happened(event protocol.Event) (lines []string, more work) {
	if t.holding {
		t.held = append(t.held, event)
		return nil, nil
	}
	switch e := event.(type) {
	case protocol.AgentState:
		t.state, t.incarnation = e.State, e.Incarnation
	case protocol.SessionUpdate:
		t.update = e
	case protocol.TurnStart:
		if text, own := t.own[e.TurnID]; own {
			lines = t.look().asked("you", text)
			delete(t.own, e.TurnID)
			t.forget(e.TurnID)
		} else if e.Attempt <= 1 {
			more = t.others(e.TurnID)
		}
	case protocol.AgentEnd:
		t.cost += protocol.Value(e.Usage.Cost)
	case protocol.TurnEnd:
		if t.shown.stop == protocol.StopMaxIterations {
			more = func() any {
				return asks{text: "go on? y/n", yes: func() any { return resend("Go on.") }}
			}
		}
	}
	return append(lines, t.shown.apply(event)...), more
}

// resend is a message that is sent as if it were typed.
type resend string

// overheard is what somebody else has said; what follows it was held back.
type overheard []string

// others has the message shown of a turn that somebody else has begun, before all that follows.
func (t *talk) others(id string) work {
	agent := t.agent
	t.holding = true
	return func() any {
		for range overhearing { // the turn is told a moment before its message is among the others
			messages, err := t.chat.history(agent, historyShown)
			if err != nil {
				return overheard{t.look().problem(cli.Harmless(err.Error(), true))}
			}
			for _, m := range messages {
				if m.Role == protocol.RoleUser && m.TurnID == id {
					return overheard(t.look().asked("somebody", m.Content))
				}
			}
			if ratelimit.Sleep(t.ctx, unsentPatience) != nil {
				break
			}
		}
		return overheard{t.look().note("somebody talks")}
	}
}

// overhearing is how often the message of somebody else's turn is looked for.
const overhearing = 10

// release shows what was held back.
func (t *talk) release(lines []string) ([]string, work) {
	held := t.held
	t.holding, t.held = false, nil
	var next work
	for i, event := range held {
		if t.holding { // by the next turn
			t.held = append(t.held, held[i:]...)
			break
		}
		more, todo := t.happened(event)
		lines = append(lines, more...)
		if todo != nil {
			next = todo
		}
	}
	return lines, next
}

// parted says why an agent's events come no more.
func (t *talk) parted(m parted) ([]string, work) {
	t.chat.forget(m.agent)
	if m.agent != t.agent || m.agent == t.moving {
		return nil, nil
	}
	lines := t.shown.flush()
	t.shown.phase, t.shown.turn, t.shown.calls = "", "", nil
	if m.err != nil {
		return append(lines, t.look().problem(cli.Harmless(m.err.Error(), true))), func() any { return ended(nil) }
	}
	return append(lines, t.look().note(t.agent+" was removed")), func() any { return lobby(nil) }
}

// arrive begins to show an agent.
func (t *talk) arrive(m arrived) []string {
	if t.agent != "" && t.agent != m.agent {
		t.chat.detach(t.agent)
	}
	t.met[m.agent] = t.met[m.agent] || m.created
	t.agent = m.agent
	t.holding, t.held = false, nil
	t.state, t.incarnation = m.info.State, m.info.Incarnation
	t.update = protocol.SessionUpdate{Model: protocol.Value(m.info.Model), Preset: protocol.Value(m.info.PermissionLevel)}
	t.shown.phase, t.shown.turn, t.shown.calls = "", "", nil
	t.chat.show(m.agent)
	return m.lines
}

// leave shows nobody any more.
func (t *talk) leave() {
	for _, agent := range t.talked() {
		t.chat.detach(agent)
	}
	t.agent, t.aside = "", nil
}

// talked are the agents that are talked to.
func (t *talk) talked() (agents []string) {
	if t.agent != "" {
		agents = append(agents, t.agent)
	}
	if t.aside != nil {
		agents = append(agents, t.aside.agent)
	}
	return agents
}

// submit takes a line that was typed. steer has it come before all that waits.
func (t *talk) submit(text string, steer bool) (lines []string, more work) {
	if q := t.question; q != nil {
		return t.answered(q, text)
	}
	text = strings.TrimRight(text, "\n")
	switch {
	case strings.TrimSpace(text) == "":
		return nil, nil
	case strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//"):
		return t.command(text)
	case t.agent == "":
		return []string{t.look().problem("no agent is talked to: /agent NAME goes to one, /help names the commands")}, nil
	}
	text = strings.TrimPrefix(text, "/")
	attached, err := attachments(t.o.Cwd, text)
	if err != nil {
		return []string{t.look().problem(cli.Harmless(err.Error(), true))}, nil
	}
	t.send(text, steer, attached)
	return nil, nil
}

func (t *talk) send(text string, steer bool, attached *[]protocol.Attachment) {
	m := message{agent: t.agent, id: uuid.NewString(), text: text, whenBusy: "queue", attached: attached}
	t.own[m.id] = text
	if steer {
		m.whenBusy = "steer"
		t.queued = append([]message{m}, t.queued...)
	} else {
		t.queued = append(t.queued, m)
	}
	t.forget("")
}

// answered takes the answer to a question.
func (t *talk) answered(q *question, text string) ([]string, work) {
	text = strings.TrimSpace(text)
	if q.answer != nil {
		t.question = nil
		return nil, q.answer(text)
	}
	switch strings.ToLower(text) {
	case "y", "yes":
		t.question = nil
		return nil, q.yes
	case "n", "no", "":
		t.question = nil
		return nil, nil
	default:
		return []string{q.text}, nil
	}
}

// interrupt cancels the running turn; false without one.
func (t *talk) interrupt() (work, bool) {
	id := t.shown.turn
	if id == "" && len(t.queued) > 0 {
		id = t.queued[0].id
	}
	if id == "" {
		return nil, false
	}
	t.shown.phase = "cancelling"
	agent := t.agent
	return func() any {
		if err := t.chat.cancel(agent, id); err != nil {
			return said{t.look().problem(cli.Harmless(err.Error(), true))}
		}
		return nil
	}, true
}
