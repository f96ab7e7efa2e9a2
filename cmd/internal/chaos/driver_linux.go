package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// driver is all that one agent's client does. Its methods are called by one
// goroutine; the sends within a step run beside each other.
type driver struct {
	server  *server
	history *History
	agent   string
	follower
	requests atomic.Int64
	tries    map[string]int // of the sends, by request; guarded by mu
	mu       sync.Mutex
	sent     []message // those that have ended or were given up, in the order of that
}

// message is one send, that can be repeated.
type message struct {
	id, content string
	busy        string  // when_busy, "" for the default
	timeout     float64 // seconds; 0 for none
	streamed    bool
}

// repeatable is how many of an agent's last sends are repeated at the end; the
// server remembers 256.
const repeatable = 40

func newDriver(s *server, h *History, agent string) *driver {
	return &driver{
		server: s, history: h, agent: agent, tries: map[string]int{},
		follower: follower{server: s, history: h, agent: agent},
	}
}

// talk does the steps until ctx ends; a step that has begun is finished, unless
// whole ends. began is when the attack did.
func (d *driver) talk(ctx, whole context.Context, began time.Time, steps []Step) {
	for _, step := range steps {
		if !pause(ctx, time.Until(began.Add(step.At))) {
			return
		}
		d.do(whole, step)
		d.history.Add(Record{Kind: Did, Action: step.Do, Agent: d.agent})
	}
}

func (d *driver) do(ctx context.Context, step Step) {
	switch step.Do {
	case Echo:
		d.send(ctx, d.message("echo %s one two three"))
	case Count:
		m := d.message("%s " + prompt("talk"))
		m.streamed = true
		d.send(ctx, m)
	case HangUp:
		d.unfollow()
		d.follow()
	case Burst:
		d.sendAll(ctx, d.message("echo %s first"), d.message("echo %s second"), d.message("echo %s third"))
	case Cancel:
		d.cancel(ctx, step.For)
	case Steer:
		second := d.message("echo %s instead")
		second.busy = api.WhenBusySteer
		var both sync.WaitGroup
		first := d.longMessage()
		both.Go(func() { d.send(ctx, first) })
		pause(ctx, step.For)
		d.send(ctx, second)
		both.Wait()
	case Timeout:
		m := d.longMessage()
		m.timeout = step.For.Seconds()
		d.send(ctx, m)
	case Repeat:
		if n := len(d.sent); n > 0 {
			d.send(ctx, d.sent[n-1])
		}
	case Prompt:
		d.send(ctx, d.message("%s "+prompt(step.Word)))
	case Recreate:
		d.recreate(ctx)
	case Shutdown:
		if c, err := d.server.call(ctx); err == nil {
			_, _ = client.Do(ctx, c, d.agent, api.Shutdown, api.None{}) // the server may be killed meanwhile
		}
	case Kill, Stop, FillDisk, KillServer: // the attacker's
	}
}

// message is a new send; %s in its content is its request_id.
func (d *driver) message(content string) message {
	id := fmt.Sprintf("%s-%d", d.agent, d.requests.Add(1))
	return message{id: id, content: fmt.Sprintf(content, id)}
}

// longMessage is a send that takes 20 s if nobody ends it.
func (d *driver) longMessage() message { return d.message("%s " + prompt("wait")) }

func (d *driver) sendAll(ctx context.Context, all ...message) {
	var sending sync.WaitGroup
	for _, m := range all {
		sending.Go(func() { d.send(ctx, m) })
	}
	sending.Wait()
}

// cancel begins a long turn and cancels it, until it has ended.
func (d *driver) cancel(ctx context.Context, after time.Duration) {
	m := d.longMessage()
	m.streamed = true
	running, ended := context.WithCancel(ctx)
	var sending sync.WaitGroup
	sending.Go(func() { defer ended(); d.send(ctx, m) })
	defer sending.Wait()
	// The cancel may come before its send, or with a server that is killed.
	for pause(running, after) {
		c, err := d.server.call(ctx)
		if err != nil {
			continue
		}
		if result, err := client.Do(ctx, c, d.agent, api.Cancel, api.CancelParams{RequestID: m.id}); err == nil {
			d.history.Add(Record{Kind: CancelSaid, Agent: d.agent, Request: m.id, Done: result.Cancelled})
		}
		after = 200 * time.Millisecond
	}
}

// recreate destroys the agent and creates it again, over the server's death too.
// What a named agent remembers goes on, the numbers of its events among it. Its
// follower is away meanwhile: asking for the events would bring it back as well,
// with other settings.
func (d *driver) recreate(ctx context.Context) {
	d.unfollow()
	defer d.follow()
	for destroyed := false; ; {
		c, err := d.server.call(ctx)
		if err == nil && !destroyed {
			_, err = client.Do(ctx, c, "", api.DestroyAgent, api.AgentIDParams{AgentID: d.agent})
			destroyed = err == nil
		}
		if err == nil {
			err = d.server.create(ctx, c, d.agent)
		}
		if err == nil || !pause(ctx, 100*time.Millisecond) {
			return
		}
	}
}

// send sends until there is an outcome, by the same request_id, or it is given
// up.
func (d *driver) send(ctx context.Context, m message) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	d.mu.Lock()
	known := d.tries[m.id] > 0
	d.mu.Unlock()
	if !known {
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.sent = append(d.sent, m)
		}()
	}
	for d.try(ctx, m) {
		if !pause(ctx, 100*time.Millisecond) {
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) { // nobody called it off
				d.history.Add(Record{Kind: GaveUp, Agent: d.agent, Request: m.id})
			}
			return
		}
	}
}

// try sends once, and reports whether that must be done again.
func (d *driver) try(ctx context.Context, m message) (again bool) {
	c, err := d.server.call(ctx)
	if err != nil {
		return false
	}
	d.mu.Lock()
	d.tries[m.id]++
	r := Record{Agent: d.agent, Request: m.id, Try: d.tries[m.id]}
	d.mu.Unlock()
	note := func(what RecordKind, change func(*Record)) {
		r := r
		r.Kind = what
		change(&r)
		d.history.Add(r)
	}
	note(Sent, func(*Record) {})
	result, err := m.send(ctx, c, d.agent)
	if err == nil {
		note(Answered, func(r *Record) {
			r.Outcome, r.Replayed, r.Truncated = "completed", result.Replayed, result.Truncated
			r.Said, r.Whole = sum(protocol.Value(result.Content)), !result.Replayed && !result.Truncated
			if result.Cancelled {
				r.Outcome = "cancelled"
				r.Whole = r.Whole && m.streamed // else it is not told
			} else {
				r.Sum = r.Said
			}
		})
		return false
	}
	if outcome, ok := outcomes[client.KindOf(err)]; ok {
		note(Answered, func(r *Record) {
			r.Outcome, r.Text = outcome, err.Error()
			if e, ok := errors.AsType[*client.RPCError](err); ok {
				r.Replayed, r.Said = e.Data.Replayed, sum(e.Data.Partial)
				r.Whole = !r.Replayed && len(e.Data.Partial) < maxPartial-utf8.UTFMax
			}
		})
		return false
	}
	if client.KindOf(err) == "" {
		note(Lost, func(r *Record) { r.Text = err.Error() })
		return true
	}
	note(Refused, func(r *Record) { r.Type, r.Text = string(client.KindOf(err)), err.Error() })
	if client.KindOf(err) == api.KindAgentFailed {
		_, _ = client.Do(ctx, c, d.agent, api.Shutdown, api.None{}) // the next try starts it afresh
	}
	return true
}

// maxPartial is how much of its text an error has at most, in bytes (SPEC §7).
const maxPartial = 64 << 10

// outcomes are what errors of a send say of the turn; others are refusals.
var outcomes = map[api.ErrorKind]string{
	api.KindChildCrashed: "crashed", api.KindTimeout: "timed_out", api.KindExecutionError: "failed",
}

func (m message) send(ctx context.Context, c *client.Client, agent string) (api.SendResult, error) {
	p := api.SendParams{Content: m.content, RequestID: &m.id}
	if m.busy != "" {
		p.WhenBusy = &m.busy
	}
	if m.timeout > 0 {
		p.TimeoutS = &m.timeout
	}
	if !m.streamed {
		return client.Do(ctx, c, agent, api.Send, p)
	}
	var text strings.Builder
	var result api.SendResult
	for part, err := range c.SendStream(ctx, agent, p) {
		if err != nil {
			return result, err
		}
		switch part := part.(type) {
		case client.Restart:
			text.Reset()
		case client.Result:
			result = api.SendResult(part)
		case client.Text:
			text.WriteString(string(part))
		}
	}
	if !result.Replayed && !result.Truncated {
		said := text.String()
		result.Content = &said // that the two are the same is a promise as well
	}
	return result, nil
}

// repeatLastSends repeats the last sends and, if again is true, destroys and creates the
// agent once more; it notes what the conversation has, and asks for all events
// again. ctx bounds it.
func (d *driver) repeatLastSends(ctx context.Context, again bool) {
	for _, m := range d.sent[max(0, len(d.sent)-repeatable):] {
		if d.send(ctx, m); ctx.Err() != nil {
			break
		}
	}
	if again {
		d.recreate(ctx)
	}
	if err := d.checkConversation(ctx); err != nil {
		d.history.Add(Record{Kind: Unread, Agent: d.agent, Text: err.Error()})
		return
	}
	d.history.Add(Record{Kind: Read, Agent: d.agent})
	limited, cancel := context.WithTimeout(ctx, stepTimeout/2)
	defer cancel()
	for d.history.missesTurnEnds(d.agent) && pause(limited, 20*time.Millisecond) { // the checker tells what is still missing then
	}
	d.replay(ctx)
}

// checkConversation notes what the conversation has.
func (d *driver) checkConversation(ctx context.Context) error {
	c, err := d.server.call(ctx)
	if err != nil {
		return err
	}
	var request string
	var answer []string
	found := func() {
		if request != "" {
			d.history.Add(Record{Kind: Found, Agent: d.agent, Request: request, Sum: sum(strings.Join(answer, "\n\n"))})
		}
		request, answer = "", nil
	}
	for offset := uint64(0); ; {
		page, err := client.Do(ctx, c, d.agent, api.GetMessages, api.GetMessagesParams{Offset: &offset})
		if err != nil {
			return err
		}
		for _, m := range page.Messages {
			switch {
			case m.Role == protocol.RoleUser:
				found()
				request = requestIn(m.Content, d.agent)
			case m.Role == protocol.RoleAssistant && m.Content != "":
				answer = append(answer, m.Content)
			}
		}
		offset += uint64(len(page.Messages))
		if len(page.Messages) == 0 || offset >= page.Total {
			found()
			return nil
		}
	}
}

// requestIn finds the request_id in a prompt.
func requestIn(content, agent string) string {
	for word := range strings.FieldsSeq(content) {
		if strings.HasPrefix(word, agent+"-") {
			return word
		}
	}
	return ""
}
