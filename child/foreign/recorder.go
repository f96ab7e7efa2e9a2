package foreign

import (
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/transcript"
)

const (
	// maxAnswer bounds the text and thinking of one message that the conversation keeps, in bytes.
	// The events have all of it.
	maxAnswer = 16 << 20
	// maxKept bounds the result of a call that the conversation keeps, in bytes.
	maxKept = 256 << 10
	// maxCalls is how many calls of one message are kept.
	maxCalls = 1024
	// maxName bounds the name and the id of a call, in bytes.
	maxName = 256
	// maxForeign bounds a message that is passed on as it is, in bytes: a frame holds it.
	maxForeign = 256 << 10
)

// Conversation is what a turn adds its messages to.
type Conversation interface {
	Add(messages ...protocol.Message)
	Messages() []protocol.Message
}

// recorder is a Sink: it passes on what a program says in a turn as events, and keeps it as
// messages of the conversation, as a turn of nexus leaves them. Text that comes after the results of
// calls begins another message.
type recorder struct {
	Turn
	agent  *Agent
	before []protocol.Message // the conversation that the turn found

	text, thinking strings.Builder // of the message
	calls          []*recordedCall // of the message
	results        int             // of these
	failed         error           // of the journal; the first
}

type recordedCall struct {
	protocol.ToolCall
	result  string
	isError bool
	ended   bool
}

func newRecorder(a *Agent, t Turn) *recorder {
	return &recorder{Turn: t, agent: a, before: slices.Clone(t.Conversation.Messages())}
}

// begin keeps the prompt.
func (r *recorder) begin() error {
	return r.keep(nil, protocol.Message{
		Role: protocol.RoleUser, Content: r.Message, Attachments: r.Attachments, Images: r.Input.Images,
		Source: r.Source, SourceAgentID: r.SourceAgentID, At: r.At,
	})
}

// keep puts messages into the conversation and the journal; usage is that of the first.
func (r *recorder) keep(usage *protocol.TurnUsage, messages ...protocol.Message) error {
	var records []transcript.Record
	for i, m := range messages {
		m.TurnID = r.ID
		if m.At.IsZero() {
			m.At = time.Now().UTC()
		}
		r.Conversation.Add(m)
		record := transcript.Message{Message: m}
		if i == 0 {
			record.Usage = usage
		}
		records = append(records, record)
	}
	return r.Journal.Append(records...)
}

// clean is text that frames can hold.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Text implements [Sink].
func (r *recorder) Text(delta string) {
	delta = clean(delta)
	if delta == "" {
		return
	}
	r.next()
	if r.text.Len()+len(delta) <= maxAnswer {
		r.text.WriteString(delta)
		r.Journal.Partial(r.ID, delta, "")
	}
	r.Listener.Emit(protocol.TextDelta{Delta: delta})
}

// Thinking implements [Sink].
func (r *recorder) Thinking(delta string) {
	delta = clean(delta)
	if delta == "" {
		return
	}
	r.next()
	if r.thinking.Len()+len(delta) <= maxAnswer {
		r.thinking.WriteString(delta)
		r.Journal.Partial(r.ID, "", delta)
	}
	r.Listener.Emit(protocol.ThinkingDelta{Delta: delta})
}

// Call implements [Sink].
func (r *recorder) Call(c Call) {
	c.ID, c.Name = textcut.Head(clean(c.ID), maxName), textcut.Head(clean(c.Name), maxName)
	known := r.call(c.ID)
	if known == nil {
		r.next()
		if len(r.calls) >= maxCalls {
			return
		}
		known = &recordedCall{ToolCall: protocol.ToolCall{ID: c.ID, Name: c.Name}}
		r.calls = append(r.calls, known)
		r.Listener.Emit(protocol.ToolcallStart{ToolID: c.ID, ToolName: c.Name})
	}
	if known.ended || len(c.Input) == 0 || string(c.Input) == string(known.Input) {
		return
	}
	if strict.Valid(c.Input) != nil || c.Input.Kind() != '{' || len(c.Input) > maxForeign {
		return // what is no object is in no frame
	}
	known.Input = c.Input.Clone()
	r.Listener.Emit(protocol.ToolcallInput{ToolID: c.ID, Input: known.Input})
}

func (r *recorder) call(id string) *recordedCall {
	i := slices.IndexFunc(r.calls, func(c *recordedCall) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return r.calls[i]
}

// Output implements [Sink].
func (r *recorder) Output(id, text string) {
	if c := r.call(id); c != nil && !c.ended && text != "" {
		r.Listener.Emit(protocol.ToolcallOutputDelta{ToolID: c.ID, Delta: clean(text)})
	}
}

// Result implements [Sink].
func (r *recorder) Result(id, text string, failed bool) {
	c := r.call(textcut.Head(clean(id), maxName))
	if c == nil || c.ended {
		return
	}
	text = clean(text)
	c.ended, c.isError, c.result = true, failed, textcut.Clip(text, maxKept)
	r.results++
	r.Listener.Emit(protocol.ToolcallResult{ToolID: c.ID, Result: text, IsError: failed})
}

// Named implements [Sink].
func (r *recorder) Named(session string) { r.note(r.save(session)) }

// Foreign implements [Sink].
func (r *recorder) Foreign(message []byte) {
	if len(message) > maxForeign || strict.Valid(message) != nil {
		r.agent.options.Log.Debug("a message of the program is not passed on", zap.Int("bytes", len(message)))
		return
	}
	r.Listener.Emit(protocol.Foreign{Protocol: r.agent.options.Program.Protocol, Message: jsontext.Value(message).Clone()})
}

// save saves what the program calls the conversation, if that is new.
func (r *recorder) save(session string) error {
	a := r.agent
	a.mu.Lock()
	known, of := a.saved == session, a.sessionID
	a.saved = session
	a.mu.Unlock()
	if known || session == "" || len(session) > maxName*4 {
		return nil
	}
	return r.Journal.Append(transcript.Settings{ProgramSession: &transcript.ProgramSession{Of: of, ID: clean(session)}, At: time.Now().UTC()})
}

// next begins another message if the calls of this one have all ended.
func (r *recorder) next() {
	if len(r.calls) > 0 && r.results == len(r.calls) {
		r.note(r.flush(false, nil))
	}
}

// note keeps the first failure of the journal, with which the turn ends.
func (r *recorder) note(err error) {
	if r.failed == nil {
		r.failed = err
	}
}

// flush keeps the message and the results of its calls.
func (r *recorder) flush(interrupted bool, usage *protocol.TurnUsage) error {
	m := protocol.Message{
		Role: protocol.RoleAssistant, Content: r.text.String(), Thinking: r.thinking.String(), Interrupted: interrupted,
	}
	var results []protocol.Message
	for _, c := range r.calls {
		if !c.ended {
			r.Result(c.ID, "the program did not say how this call ended", true)
		}
		if c.Input == nil {
			c.Input = jsontext.Value("{}")
		}
		m.ToolCalls = append(m.ToolCalls, c.ToolCall)
		results = append(results, protocol.Message{
			Role: protocol.RoleTool, Content: c.result, IsError: c.isError, ToolCallID: c.ID, ToolName: c.Name,
		})
	}
	empty := m.Content == "" && m.Thinking == "" && len(m.ToolCalls) == 0
	r.text.Reset()
	r.thinking.Reset()
	r.calls, r.results = nil, 0
	if empty && usage == nil {
		return nil
	}
	return r.keep(usage, append([]protocol.Message{m}, results...)...)
}

// end keeps what is left of the turn.
func (r *recorder) end(interrupted bool, usage protocol.TurnUsage) error {
	r.note(r.flush(interrupted, &usage))
	return r.failed
}

// cutOff keeps what a program said that has ended by itself. Whoever reads the journal next finds a
// turn that has not ended.
func (r *recorder) cutOff() {
	r.note(r.flush(true, nil))
	if r.failed != nil {
		r.agent.options.Log.Warn("what the program said last is not saved", zap.Error(r.failed))
	}
}
