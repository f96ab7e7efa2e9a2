package turn

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/child/conversation"
	"nexus.internal/child/provider"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// maxCallID bounds the id of a call and the name of its tool, in bytes; a
// longer id is replaced. Each call takes as much of conversation.MaxAnswer for either.
const maxCallID = 256

// answer collects one answer of the provider and passes its steps on.
type answer struct {
	*run
	window    conversation.Window // what was asked
	text      strings.Builder
	thinking  strings.Builder
	signature string
	calls     []protocol.ToolCall
	started   []string            // our ids of calls that began
	ids       map[string][]string // the provider's id → ours of the calls that bear it and are not whole
	input     int                 // bytes of the inputs of calls, as they came in pieces
	whole     int                 // and of those that are whole
	begun     bool                // something of it has come
	usage     *protocol.TurnUsage
	lost      protocol.TurnUsage // by tries that broke off, of which the provider told
	reason    provider.FinishReason
}

// exceeds reports whether the answer would be too long with the delta. What a
// piece becomes as clean text is longer by two bytes at most for each of it.
func (a *answer) exceeds(d provider.Delta) bool {
	said := a.text.Len() + a.thinking.Len() + 2*maxCallID*len(a.started)
	input, whole := a.input, a.whole
	switch d := d.(type) {
	case provider.Text:
		said += len(d.Text)
	case provider.Thinking:
		said += len(d.Text)
	case provider.CallStart:
		said += 2 * maxCallID
	case provider.CallInput:
		input += len(d.Fragment)
	case provider.Call:
		whole += len(d.Input)
	case provider.ThinkingSignature, provider.Retry, provider.Switched, provider.Stop:
	}
	return said+max(input, whole) > conversation.MaxAnswer
}

// apply takes one delta into the answer and passes it on.
func (a *answer) apply(d provider.Delta) {
	switch d.(type) {
	case provider.Retry, provider.Switched:
	default:
		a.begun = true
	}
	switch d := d.(type) {
	case provider.Text:
		text := clean(d.Text)
		a.text.WriteString(text)
		a.Journal.Partial(a.id, text, "")
		a.Emit(protocol.TextDelta{Delta: text})
	case provider.Thinking:
		text := clean(d.Text)
		a.thinking.WriteString(text)
		a.Journal.Partial(a.id, "", text)
		a.Emit(protocol.ThinkingDelta{Delta: text})
	case provider.ThinkingSignature:
		a.signature = clean(d.Text)
	case provider.CallStart:
		a.start(d.ID, d.Name)
	case provider.CallInput:
		a.input += len(d.Fragment)
		a.Emit(protocol.ToolcallInputDelta{ToolID: a.callID(d.ID), Delta: clean(d.Fragment)})
	case provider.Call:
		a.call(d.ToolCall)
	case provider.Retry:
		a.Log.Info("provider will be asked again", zap.String("reason", d.Reason))
		a.Emit(protocol.Retry{Reason: clean(d.Reason), Attempt: uint64(d.Attempt), MaxAttempts: uint64(d.MaxAttempts), WaitMS: uint64(d.Wait.Milliseconds())})
	case provider.Switched:
		a.Log.Warn("the model's service is down, so the fallback model is asked", zap.String("model", d.Model), zap.String("reason", d.Reason))
		a.Emit(protocol.Fallback{Model: clean(d.Model), Reason: clean(d.Reason)})
	case provider.Stop:
		a.usage, a.reason = &d.Usage, d.Reason
	}
}

// start opens a call under an id that is ours: the provider's, unless that is
// missing, too long or used before in this turn.
func (a *answer) start(id, name string) {
	ours := clean(id)
	for n := len(a.used) + 1; ours == "" || len(ours) > maxCallID || a.used[ours]; n++ {
		ours = fmt.Sprintf("call_%d", n)
	}
	a.used[ours] = true
	a.ids[id] = append(a.ids[id], ours)
	a.started = append(a.started, ours)
	a.Emit(protocol.ToolcallStart{ToolID: ours, ToolName: toolName(name)})
}

// callID is our id of the call that input belongs to: of those that the provider
// calls id, the last one that began.
func (a *answer) callID(id string) string {
	if len(a.ids[id]) == 0 {
		a.start(id, "")
	}
	return a.ids[id][len(a.ids[id])-1]
}

// call takes a whole call. Calls that share an id become whole in the order in
// which they began.
func (a *answer) call(c protocol.ToolCall) {
	if len(a.ids[c.ID]) == 0 {
		a.start(c.ID, c.Name)
	}
	id := c.ID
	c.ID, c.Name, c.Input = a.ids[id][0], toolName(c.Name), input(c.Input)
	a.ids[id] = a.ids[id][1:]
	a.calls = append(a.calls, c)
	a.whole += len(c.Input)
	a.Emit(protocol.ToolcallInput{ToolID: c.ID, Input: c.Input})
}

// check says what is wrong with an answer that came to its end; nil if nothing is.
func (a *answer) check() error {
	switch {
	case a.usage == nil:
		return ErrIncomplete
	case a.reason == provider.FinishLength && len(a.started) > len(a.calls):
		return ErrCutCall
	case a.reason == provider.FinishFiltered && a.text.Len() == 0 && len(a.calls) == 0:
		return ErrHeldBack
	default:
		return nil
	}
}

// stop says how the turn ends with an answer that calls no tools.
func (a *answer) stop() protocol.StopReason {
	switch a.reason {
	case provider.FinishLength:
		return protocol.StopMaxTokens
	case provider.FinishFiltered:
		return protocol.StopContentFilter
	case provider.FinishStop, provider.FinishToolCalls:
	}
	return protocol.StopCompleted
}

// usageOrEstimate is what the answer cost: what the provider counted or estimated, or for
// an answer that began and was cut off, of whose cost the provider says nothing, an
// estimate. That is the offline model, whose own counts are estimates that are not marked.
// Nil is nothing that is known of.
func (a *answer) usageOrEstimate() *protocol.TurnUsage {
	used := a.lost
	switch {
	case a.usage != nil:
		used.Add(*a.usage)
	case a.lost != (protocol.TurnUsage{}):
	case a.begun:
		used.InputTokens, used.OutputTokens = a.Conversation.Estimate(a.window, a.text.Len()+a.thinking.Len()+a.input)
	default:
		return nil
	}
	return &used
}

// closeUnfinished gives a result to the calls that began and did not become
// whole, so that whoever watches is not left waiting.
func (a *answer) closeUnfinished() {
	whole := map[string]bool{}
	for _, c := range a.calls {
		whole[c.ID] = true
	}
	for _, id := range a.started {
		if !whole[id] {
			a.Emit(protocol.ToolcallResult{ToolID: id, Result: "cancelled", IsError: true})
		}
	}
}

func (a *answer) message() protocol.Message {
	return protocol.Message{
		Role: protocol.RoleAssistant, Content: a.text.String(), ToolCalls: a.calls,
		Thinking: a.thinking.String(), ThinkingSignature: a.signature,
	}
}

// clean makes text that can be written as JSON.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// toolName is the name of a tool; one that is too long names none.
func toolName(name string) string { return clean(textcut.Head(name, maxCallID)) }

// input makes JSON of what the model gave: itself, an empty object for
// nothing, and a string for what is no JSON, which the registry then refuses.
func input(raw jsontext.Value) jsontext.Value {
	if len(strings.TrimSpace(string(raw))) == 0 {
		return jsontext.Value("{}")
	}
	if raw.IsValid() {
		compact := raw.Clone()
		if compact.Compact() == nil {
			return compact
		}
	}
	quoted, err := json.Marshal(clean(string(raw)))
	if err != nil {
		return jsontext.Value(`""`)
	}
	return quoted
}
