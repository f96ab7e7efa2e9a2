package protocol

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Members appends a JSON object by hand, member by member, for the few objects that every turn
// writes: the general encoder takes most of its time, and of its memory traffic, to find out
// what they are made of. The bytes are those of json.Marshal; tests compare them for each field.
type Members struct {
	out   []byte
	err   error
	first bool // no member has been written
}

// NewMembers begins an object at the end of dst.
func NewMembers(dst []byte) Members { return Members{out: append(dst, '{'), first: true} }

// Close ends the object and returns dst with it. It fails if a string was not UTF-8.
func (m *Members) Close() ([]byte, error) { return append(m.out, '}'), m.err }

func (m *Members) name(name string) {
	if !m.first {
		m.out = append(m.out, ',')
	}
	m.first = false
	m.out = append(append(append(m.out, '"'), name...), `":`...)
}

// String appends a string. The name needs no escapes, here and below.
func (m *Members) String(name, value string) {
	m.name(name)
	var err error
	if m.out, err = jsontext.AppendQuote(m.out, value); err != nil && m.err == nil {
		m.err = err
	}
}

// OmitEmpty appends a string that is not empty.
func (m *Members) OmitEmpty(name, value string) {
	if value != "" {
		m.String(name, value)
	}
}

// OmitFalse appends a true.
func (m *Members) OmitFalse(name string, value bool) {
	if value {
		m.Bool(name, true)
	}
}

// OmitZero appends a number that is not 0.
func (m *Members) OmitZero(name string, value int) {
	if value != 0 {
		m.name(name)
		m.out = strconv.AppendInt(m.out, int64(value), 10)
	}
}

// Bool appends a boolean.
func (m *Members) Bool(name string, value bool) {
	m.name(name)
	m.out = strconv.AppendBool(m.out, value)
}

// Uint appends a number.
func (m *Members) Uint(name string, value uint64) {
	m.name(name)
	m.out = strconv.AppendUint(m.out, value, 10)
}

// Number appends a number that need not be whole.
func (m *Members) Number(name string, value float64) {
	m.name(name)
	data, err := json.Marshal(value)
	if m.out = append(m.out, data...); err != nil && m.err == nil {
		m.err = err
	}
}

// Time appends a time, which must be as [PlainTime] wants it.
func (m *Members) Time(name string, t time.Time) {
	m.name(name)
	m.out = append(t.AppendFormat(append(m.out, '"'), time.RFC3339Nano), '"')
}

// PlainTime reports whether Time can write t: it is UTC, and its year has four digits.
func PlainTime(t time.Time) bool {
	return t.Location() == time.UTC && t.Year() >= 0 && t.Year() <= 9999
}

// Usage appends an object.
func (m *Members) Usage(name string, u TurnUsage) {
	m.name(name)
	in := NewMembers(m.out)
	in.Uint("input_tokens", u.InputTokens)
	in.Uint("output_tokens", u.OutputTokens)
	in.Uint("cache_read_input_tokens", u.CacheReadInputTokens)
	in.Uint("cache_creation_input_tokens", u.CacheCreationInputTokens)
	if u.CacheCreation5m != nil {
		in.Uint("cache_creation_5m", *u.CacheCreation5m)
	}
	if u.CacheCreation1h != nil {
		in.Uint("cache_creation_1h", *u.CacheCreation1h)
	}
	in.OmitFalse("estimated", u.Estimated)
	if u.Model != nil {
		in.String("model", *u.Model)
	}
	if u.Cost != nil {
		in.Number("cost", *u.Cost)
	}
	m.nested(&in)
}

// Message appends an object.
func (m *Members) Message(name string, v Message) {
	m.name(name)
	if len(v.ToolCalls)+len(v.Attachments)+len(v.Images)+len(v.Changed)+len(v.Created) > 0 || !v.At.IsZero() && !PlainTime(v.At) {
		data, err := json.Marshal(v)
		if m.out = append(m.out, data...); err != nil && m.err == nil {
			m.err = err
		}
		return
	}
	in := NewMembers(m.out)
	in.String("role", string(v.Role))
	in.String("content", v.Content)
	in.OmitEmpty("thinking", v.Thinking)
	in.OmitEmpty("thinking_signature", v.ThinkingSignature)
	in.OmitEmpty("tool_call_id", v.ToolCallID)
	in.OmitEmpty("tool_name", v.ToolName)
	in.OmitFalse("is_error", v.IsError)
	in.OmitFalse("interrupted", v.Interrupted)
	in.OmitFalse("left_out", v.LeftOut)
	in.OmitEmpty("turn_id", v.TurnID)
	in.OmitEmpty("source", v.Source)
	in.OmitEmpty("source_agent_id", v.SourceAgentID)
	if !v.At.IsZero() {
		in.Time("at", v.At)
	}
	m.nested(&in)
}

// nested takes over what in has appended after m.
func (m *Members) nested(in *Members) {
	var err error
	if m.out, err = in.Close(); err != nil && m.err == nil {
		m.err = err
	}
}

func (m *Members) agentEnd(e AgentEnd) {
	m.Usage("usage", e.Usage)
	m.OmitEmpty("stop_reason", string(e.StopReason))
	m.OmitEmpty("turn_id", e.TurnID)
}

func (m *Members) sessionUpdate(e SessionUpdate) {
	m.String("session_id", e.SessionID)
	m.String("model", e.Model)
	m.String("provider", e.Provider)
	m.String("preset", e.Preset)
	m.String("cwd", e.Cwd)
	m.Uint("message_count", e.MessageCount)
	m.Uint("total_tokens", e.TotalTokens)
	m.Uint("budget_tokens", e.BudgetTokens)
	m.Bool("halted_at_iteration_limit", e.HaltedAtIterationLimit)
	if e.LastActionAt != nil {
		m.String("last_action_at", *e.LastActionAt)
	}
	m.OmitEmpty("kind", e.Kind)
}

// prompt is for one without attachments.
func (m *Members) prompt(p Prompt) {
	m.String("id", p.ID)
	m.String("message", p.Message)
	m.name("attachments")
	m.out = append(m.out, "[]"...)
	m.OmitEmpty("source", p.Source)
	m.OmitEmpty("source_agent_id", p.SourceAgentID)
	m.OmitEmpty("traceparent", p.Traceparent)
}

func (m *Members) turnStart(e TurnStart) {
	m.String("turn_id", e.TurnID)
	m.OmitZero("attempt", e.Attempt)
}

func (m *Members) turnEnd(e TurnEnd) {
	m.String("turn_id", e.TurnID)
	m.String("outcome", e.Outcome)
	m.OmitEmpty("error", e.Error)
}
