package terminal

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
	"nexus.internal/protocol/ratelimit"
)

// historyShown is how many messages of a conversation are shown to whoever comes to it.
const historyShown = 20

// historySearched is in how many the message of somebody else's turn is looked for: a turn that we come into
// may have many of its own.
const historySearched = 200

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
		created bool // by us, or restored
		info    about
	}
	// unbegun is sent, a moment later: of a message whose turn was not told by then.
	unbegun sent
	// renamed says that the agent that is talked to has another name.
	renamed arrived
	// stays are lines about an agent that keeps its name.
	stays []string
	// lobby says that nobody is talked to any more.
	lobby []string
	// failed says why there is nobody to talk to; a talk that there is goes on.
	failed string
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
	keys   string    // keys each of which answers it alone, in the lobby; any other line waits. "" for lines
	listed int       // how many sessions its text lists: on a low screen the first of them are shown
	beyond int       // how many sessions more there are, which are chosen by name
	about  string    // the request that a line is the reason of a denial of; "" for none
	passes bool      // a line that is neither yes nor no is what it is without the question
}

// talk is the conversation of a person: with one agent, and in whisper mode with another one
// beside it. It belongs to one goroutine; only what work does runs elsewhere.
type talk struct {
	ctx   context.Context
	chat  *chat
	c     *client.Client
	o     Options
	agent string
	aside *aside // beginWhispering mode: the agent that is returned to; nil for none

	shown    transcript
	queued   []message         // ours that have not begun; the first one for each agent is on its way
	own      map[string]string // the texts of those whose turn was not told, by id
	ended    map[string]bool   // of those, the ones whose end was told by the answer
	requests []wants           // those that the person is asked about
	waiting  []wants           // those of others: as many as wait at the server
	question *question
	moving   string // the agent whose name is about to end; "" for none
	under    int    // how much is under way that lines wait for
	behind   []typedLine

	state       string
	incarnation uint64
	used        used
	kind        *string // of an agent of another make
	update      protocol.SessionUpdate
	over        bool
	gone        bool // the server has ended
	holding     bool // what somebody else has said is not known yet
	held        []happened
	failed      atomic.Bool  // there was nothing to talk to
	width       atomic.Int64 // of the terminal
}

// aside is an agent that is not shown for a while.
type aside struct {
	agent  string
	shown  transcript
	events []happened // what it has done meanwhile, the last of it

	state       string
	incarnation uint64
	kind        *string
	update      protocol.SessionUpdate
	used        used
	gone        bool // it was removed meanwhile
}

// maxAside is how many events of such an agent are kept.
const maxAside = 10_000

// message is one that waits for its turn. Of those for one agent only the first one is at the server, so that
// they come in their order. One without an agent waits for somebody to talk to.
type message struct {
	agent, id, text, whenBusy string
	attached                  *[]protocol.Attachment
	known                     <-chan error // what is known of it, as chat.send says; nil before it is sent
	halted                    bool         // its agent was stopped: it is not sent any more
}

func newTalk(ctx context.Context, c *client.Client, o Options, tell telling) *talk {
	return &talk{
		ctx: ctx, c: c, o: o, chat: newChat(ctx, c, tell), own: map[string]string{}, ended: map[string]bool{},
		shown: transcript{look: look{plain: o.Plain, verbose: o.Verbose, colourless: cli.Colourless(o.Environ)}, now: time.Now},
	}
}

// look is how things are shown; from any goroutine.
func (t *talk) look() look {
	return look{int(t.width.Load()), t.o.Plain, t.o.Verbose, cli.Colourless(t.o.Environ)}
}

// resize takes the terminal's width. The last column stays free: behind each line that bubbletea prints it
// erases the rest, and that is on many terminals the last character of a line of the whole width.
func (t *talk) resize(width int) {
	t.width.Store(int64(max(0, width-1)))
	t.shown.look = t.look()
}

// begin begins to talk to an agent. It is work.
func (t *talk) begin(agent string, created bool) work {
	return func() any {
		lines := []string{}
		loaded, err := client.Do(t.ctx, t.c, "", api.LoadSession, api.LoadSessionParams{SessionName: &agent})
		if err == nil && loaded.NarrowedFrom != "" {
			lines = append(lines, t.look().note(agent+" is trusted: "+loaded.NarrowedFrom+" cannot be granted over RPC"))
		}
		from := t.chat.turnOf(agent)
		t.chat.attach(agent, from)
		messages, err := t.chat.history(agent, historyShown)
		if err != nil {
			return t.fail(err)
		}
		messages = slices.DeleteFunc(messages, func(m api.Message) bool { return from.turn != "" && m.TurnID == from.turn }) // they come with the turn
		info := t.chat.about(agent)
		if info.AgentID == "" { // the key is for this agent alone, and was refused those of all
			t.chat.approvals(agent)
		}
		return arrived{agent, append(lines, t.look().past(messages)...), created || loaded.Restored, info}
	}
}

// handle takes what has happened, and returns lines to show, and work to do.
func (t *talk) handle(msg any) (lines []string, more work) {
	switch m := msg.(type) {
	case broken:
		panic(cli.Harmless(m.String(), false))
	case happened:
		if m.agent == t.agent {
			return t.happened(m)
		}
		if a := t.aside; a != nil && a.agent == m.agent {
			if len(a.events) == maxAside {
				a.events = append(a.events[:0], happened{event: protocol.Gap{}}) // what is told of it is its last words
			}
			a.events = append(a.events, m)
		}
	case parted:
		return t.parted(m)
	case used:
		if m.agent == t.agent {
			t.used = m
		}
	case sent:
		t.chat.later(unbegunPatience, func() any { return unbegun(t.chat.ended(m)) }) // its turn may not have been told yet
	case unbegun:
		return withoutTurn(t, m), nil
	case stopped:
		if !m.done {
			halt(t, m.agent, false)
			t.forget("")
		}
		return m.lines, nil
	case wants:
		return nil, wait(t, m)
	case ours:
		return askAbout(t, m), nil
	case settled:
		return t.settle(m.agent, m.id), nil
	case said:
		return m, nil
	case overheard:
		return t.release(m)
	case arrived:
		lines = t.arrive(m)
		early, works := earlier(t)
		return append(lines, early...), together(t, append(works, claim(t, t.waiting)))
	case stays:
		t.moving = ""
		return m, nil
	case renamed:
		return rename(t, m), claim(t, t.waiting)
	case asks:
		t.question = (*question)(&m)
		if t.o.Plain {
			return []string{m.text}, nil
		}
	case whispers:
		return beginWhisper(t, m), claim(t, t.waiting)
	case resend:
		t.send(string(m), false, nil)
	case lobby:
		return toLobby(t, m)
	case carriedOut:
		t.under--
		return t.handle(m.msg)
	case failed:
		if t.agent != "" {
			return []string{string(m)}, nil
		}
		t.failed.Store(true)
		return t.handle(ended{string(m)})
	case ended:
		t.over = true
		return append(t.shown.flush(), m...), nil
	}
	return nil, nil
}

// withoutTurn takes that a message has had no turn. If its agent was stopped, nothing else that waits for that one is sent.
func withoutTurn(t *talk, m unbegun) (lines []string) {
	if m.halted = m.halted || m.cancelled && m.agent == t.agent && halted(t.state); m.halted {
		halt(t, m.agent, true)
	}
	if q := t.forget(m.id); q != nil {
		lines = q.unbegun(t, m)
	}
	return append(lines, strandHalted(t)...)
}

// rename goes on with an agent under its other name.
func rename(t *talk, m renamed) []string {
	t.moving = ""
	m.lines = append(t.shown.flush(), m.lines...)
	update := t.update
	lines := t.arrive(arrived(m))
	t.update = update // it is the same agent
	return lines
}

// toLobby leaves an agent that is gone: for the one beside which it was whispered to, or for the lobby.
func toLobby(t *talk, m lobby) ([]string, work) {
	t.moving = ""
	m = append(m, strand(t)...)
	if t.aside != nil {
		lines, more := whisperOver(t, nil)
		return append(m, lines...), more
	}
	t.leave()
	return m, during(t, t.enterLobby)
}

// unbegunPatience is how long a message whose answer is there waits for its turn to be told.
const unbegunPatience = 200 * time.Millisecond

// forget drops a message of ours that waits no more, and sends the first one for each agent. It returns the message
// that was dropped; nil if none waits under that id.
func (t *talk) forget(id string) (dropped *message) {
	if i := slices.IndexFunc(t.queued, func(m message) bool { return m.id == id }); i >= 0 {
		dropped = new(t.queued[i])
		t.queued = slices.Delete(t.queued, i, i+1)
	}
	behind := map[string]bool{} // the agents for which a message was seen
	for i := range t.queued {
		m := &t.queued[i]
		if m.known == nil && m.agent != "" && !behind[m.agent] && !m.halted {
			m.known = t.chat.send(*m)
		}
		behind[m.agent] = true
	}
	return dropped
}

// happened takes an event of the agent.
func (t *talk) happened(m happened) (lines []string, more work) {
	if t.holding {
		t.held = append(t.held, m)
		return nil, nil
	}
	t.shown.at = m.at
	switch e := m.event.(type) {
	case protocol.AgentState:
		t.state, t.incarnation = e.State, e.Incarnation
	case protocol.SessionUpdate:
		t.update = e
	case protocol.TurnStart:
		if text, own := t.own[e.TurnID]; own {
			lines = t.look().asked("you", text)
			delete(t.own, e.TurnID)
			t.forget(e.TurnID)
			lines = append(lines, strandHalted(t)...)
		} else if e.Attempt <= 1 {
			more = t.others(e.TurnID)
		}
	case protocol.TurnEnd:
		t.chat.usage(t.agent)
		if t.shown.turn == "" && e.Outcome != "completed" && e.Outcome != "cancelled" {
			return lost(t, e), nil
		}
		if t.shown.stop == protocol.StopMaxIterations && e.TurnID == t.shown.turn {
			more = func() any {
				return asks{text: "go on? y/n", passes: true, yes: func() any { return resend("Go on.") }}
			}
		}
	}
	return append(lines, t.shown.apply(m.event)...), more
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
			messages, err := t.chat.history(agent, historySearched)
			if err != nil {
				return overheard{t.look().problem(cli.Harmless(err.Error(), true))}
			}
			for _, m := range messages {
				if m.Role == protocol.RoleUser && m.TurnID == id {
					return overheard(t.look().asked("somebody", m.Content))
				}
			}
			if ratelimit.Sleep(t.ctx, unbegunPatience) != nil {
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
	t.chat.detach(m.agent)
	if t.aside != nil && m.agent == t.aside.agent && m.agent != t.moving {
		t.aside.gone = true
	}
	if m.agent != t.agent || m.agent == t.moving {
		return nil, nil
	}
	lines := t.shown.flush()
	t.shown.phase, t.shown.turn, t.shown.calls = "", "", nil
	switch {
	case errors.Is(m.err, client.ErrNoServer):
		t.gone = true
		t.failed.Store(true)
		return append(lines, t.look().problem("the server has ended: "+cmp.Or(t.o.After, t.o.Program+" --resume starts one, and goes on with the session that was used last"))), func() any { return ended(nil) }
	case m.err != nil:
		t.failed.Store(true)
		return append(lines, t.look().problem(cli.Harmless(m.err.Error(), true))), func() any { return ended(nil) }
	}
	return append(lines, t.look().note(t.agent+" was removed")), func() any { return lobby(nil) }
}

// arrive begins to show an agent.
func (t *talk) arrive(m arrived) []string {
	if t.agent != "" && t.agent != m.agent {
		t.chat.detach(t.agent)
	}
	t.chat.met.add(m.agent, m.created)
	t.agent = m.agent
	t.holding, t.held = false, nil
	t.state, t.incarnation = m.info.State, m.info.Incarnation
	t.update = protocol.SessionUpdate{Model: protocol.Value(m.info.Model), Preset: protocol.Value(m.info.PermissionLevel)}
	t.kind, t.used = m.info.Kind, usedBy(m.info)
	t.shown.phase, t.shown.turn, t.shown.calls = "", protocol.Value(m.info.RequestID), nil // its end comes: the events were there before
	// The end of a turn is told by turn_end, and by no agent_state.
	if t.state == busyState {
		t.state, t.shown.phase = readyState, busyState
	}
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
