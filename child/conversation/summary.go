package conversation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// summaryHead opens the content of every summary.
const summaryHead = "Summary of the earlier conversation:\n"

// answeredHead opens the lines of a summary made by rule that quote an answer.
const answeredHead = "(answered: "

const (
	lineLimit    = 200     // bytes of one message in a summary made by rule
	summaryLimit = 8 << 10 // bytes of a summary made by rule
	answerLimit  = 32 << 10
	textLimit    = 16 << 10 // bytes of one message that the model which summarises is shown
	resultLimit  = 2 << 10  // bytes of one result or input that it is shown
	callOverhead = 512      // bytes of MaxAnswer that a call takes beside its input
)

const cutNote = "\n[the summary was cut off here]"

const omittedNote = "[what was said before is left out]\n"

const summaryInstruction = `Summarise the conversation so far for an assistant that will go on with it and see nothing else of it. Keep names, facts, decisions, open tasks, file paths and results of tools. Write plain text, as short as that allows.`

// IsSummary reports whether compaction made the message.
func IsSummary(m protocol.Message) bool {
	return m.Role == protocol.RoleUser && strings.HasPrefix(m.Content, summaryHead)
}

// What stands before the lists at the end of a summary.
const (
	todoHead = "\n\nThings to do, as the tool todo had them then:\n"
	jobsHead = "\n\nBackground jobs that ran then (see job_list and job_output):\n"
)

// NewSummary makes the message that stands for what was summarised, with what there is to do
// and which jobs run, "" for none. It speaks as the user, since that is what every provider
// accepts in the first place.
func NewSummary(text, todo, jobs string, at time.Time) protocol.Message {
	if todo != "" {
		text += todoHead + todo
	}
	if jobs != "" {
		text += jobsHead + jobs
	}
	return protocol.Message{Role: protocol.RoleUser, Content: summaryHead + text, At: at.UTC()}
}

// summarised is the text of a summary without what there was to do and which jobs ran, which a
// later summary has as it is then.
func summarised(m protocol.Message) string {
	text := strings.TrimPrefix(m.Content, summaryHead)
	for _, head := range []string{jobsHead, todoHead} {
		if at := strings.LastIndex(text, head); at >= 0 {
			text = text[:at]
		}
	}
	return text
}

// UserText is what the user said in a message: of a summary made by rule, all but
// the answers.
func UserText(m protocol.Message) string {
	if !IsSummary(m) {
		return m.Content
	}
	var b strings.Builder
	for line := range strings.Lines(summarised(m)) {
		if !strings.HasPrefix(line, answeredHead) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// SummarizeByRule summarises without a model: what the user said and how each turn was
// answered, the beginning of each, the same for the same messages. Where that
// is too much, the oldest lines go.
func SummarizeByRule(messages []protocol.Message) string {
	var lines []string
	for _, m := range messages {
		switch {
		case IsSummary(m):
			lines = append(lines, strings.Split(summarised(m), "\n")...)
		case m.Role == protocol.RoleUser:
			lines = append(lines, textcut.Line(m.Content, lineLimit))
		case m.Role == protocol.RoleAssistant && m.Content != "":
			lines = append(lines, answeredHead+textcut.Line(m.Content, lineLimit)+")")
		}
	}
	length := 0
	for i := len(lines) - 1; i >= 0; i-- {
		if length += len(lines[i]) + 1; length > summaryLimit {
			return strings.Join(lines[i+1:], "\n")
		}
	}
	return strings.Join(lines, "\n")
}

// Render writes messages down as one text for a model to read, in at most limit
// bytes: a summary that stands first is kept, then the latest messages, each
// with the head of what is long.
func Render(messages []protocol.Message, limit int) string {
	var first string
	if len(messages) > 0 && IsSummary(messages[0]) {
		first, messages = summaryHead+summarised(messages[0])+"\n\n", messages[1:]
	}
	var parts []string
	room := limit - len(first)
	for _, m := range slices.Backward(messages) {
		part := renderOne(m)
		if room -= len(part); room < len(omittedNote) {
			parts = append(parts, omittedNote)
			break
		}
		parts = append(parts, part)
	}
	slices.Reverse(parts)
	return first + strings.Join(parts, "")
}

func renderOne(m protocol.Message) string {
	var b strings.Builder
	switch m.Role {
	case protocol.RoleTool:
		fmt.Fprintf(&b, "[%s gave] %s\n", m.ToolName, clip(m.Content, resultLimit))
	case protocol.RoleUser, protocol.RoleAssistant, protocol.RoleSystem:
		fmt.Fprintf(&b, "[%s] %s\n", m.Role, clip(m.Content, textLimit))
	}
	for _, image := range m.Images {
		fmt.Fprintf(&b, "[image %s]\n", image.Name)
	}
	for _, call := range m.ToolCalls {
		fmt.Fprintf(&b, "[called %s] %s\n", call.Name, clip(string(call.Input), resultLimit))
	}
	return b.String()
}

func clip(text string, limit int) string {
	head := textcut.Head(text, limit)
	if len(head) == len(text) {
		return text
	}
	return fmt.Sprintf("%s… [%d bytes more]", head, len(text)-len(head))
}

// SummarizeByModel asks the provider for a summary of messages, of which it is shown at
// most limit bytes. The usage is what that cost, as far as the provider said.
func SummarizeByModel(ctx context.Context, p provider.Provider, model string, messages []protocol.Message, limit int) (text string, usage protocol.TurnUsage, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the provider panicked: %v", v)
		}
	}()
	// One text and no messages: no provider then asks for the tools, signatures
	// and images that belong to them.
	request := provider.Request{Model: model, System: summaryInstruction, Messages: []protocol.Message{{
		Role: protocol.RoleUser, Content: "<conversation>\n" + Render(messages, limit) + "</conversation>\n\n" + summaryInstruction,
	}}, Lost: &usage}
	var b strings.Builder
	var said int // bytes, whatever they are
	var finish provider.FinishReason
	for delta, err := range p.Stream(ctx, request) {
		if err != nil {
			return "", usage, err
		}
		if said > MaxAnswer {
			return "", usage, errors.New("the model's summary has no end")
		}
		switch delta := delta.(type) {
		case provider.Text:
			if said += len(delta.Text); b.Len() < answerLimit {
				b.WriteString(strings.ToValidUTF8(delta.Text, "\uFFFD"))
			}
		case provider.Stop:
			usage.Add(delta.Usage)
			finish = delta.Reason
		case provider.Thinking:
			said += len(delta.Text)
		case provider.CallInput:
			said += len(delta.Fragment)
		case provider.CallStart:
			said += callOverhead
		case provider.ThinkingSignature, provider.Call, provider.Retry:
		}
	}
	if err := ctx.Err(); err != nil {
		return "", usage, err
	}
	switch text = strings.TrimSpace(b.String()); {
	case finish == provider.FinishFiltered: // it may be a refusal
		return "", usage, errors.New("the model's service held the summary back")
	case text == "":
		return "", usage, errors.New("the model gave no summary")
	case finish == provider.FinishLength:
		text += cutNote
	}
	return clip(text, answerLimit), usage, nil
}
