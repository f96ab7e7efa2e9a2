package dialog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

// summaryHead opens the content of every summary.
const summaryHead = "Summary of the earlier conversation:\n"

const (
	lineLimit    = 200     // bytes of one message in a summary made by rule
	summaryLimit = 8 << 10 // bytes of a summary made by rule
	answerLimit  = 64 << 10
)

const instruction = `Summarise the conversation so far for an assistant that will go on with it and see nothing else of it. Keep names, facts, decisions, open tasks, file paths and results of tools. Write plain text, as short as that allows.`

// IsSummary reports whether compaction made the message.
func IsSummary(m protocol.Message) bool {
	return m.Role == protocol.RoleUser && strings.HasPrefix(m.Content, summaryHead)
}

// NewSummary makes the message that stands for what was summarised. It speaks
// as the user, since that is what every provider accepts in the first place.
func NewSummary(text string, at time.Time) protocol.Message {
	return protocol.Message{Role: protocol.RoleUser, Content: summaryHead + text, At: at.UTC()}
}

// ByRule summarises without a model: what the user said and how each turn was
// answered, the beginning of each, the same for the same messages. Where that
// is too much, the oldest lines go.
func ByRule(messages []protocol.Message) string {
	var lines []string
	for _, m := range messages {
		switch {
		case IsSummary(m):
			lines = append(lines, strings.Split(strings.TrimPrefix(m.Content, summaryHead), "\n")...)
		case m.Role == protocol.RoleUser:
			lines = append(lines, head(m.Content))
		case m.Role == protocol.RoleAssistant && m.Content != "":
			lines = append(lines, "(answered: "+head(m.Content)+")")
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

// head is the text on one line, cut at a character boundary.
func head(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= lineLimit {
		return text
	}
	return strings.ToValidUTF8(text[:lineLimit], "") + "…"
}

// ByModel asks the provider for a summary. The usage is what that cost.
func ByModel(ctx context.Context, p provider.Provider, model string, messages []protocol.Message) (text string, usage protocol.TurnUsage, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("provider panicked: %v", v)
		}
	}()
	request := provider.Request{
		Model:    model,
		System:   instruction,
		Messages: append(messages, protocol.Message{Role: protocol.RoleUser, Content: instruction}),
	}
	var b strings.Builder
	for delta, err := range p.Stream(ctx, request) {
		if err != nil {
			return "", usage, err
		}
		switch delta := delta.(type) {
		case provider.Text:
			if b.Len() < answerLimit {
				b.WriteString(strings.ToValidUTF8(delta.Text, "\uFFFD"))
			}
		case provider.Stop:
			usage.Add(delta.Usage)
		case provider.Thinking, provider.CallStart, provider.CallInput, provider.Call, provider.Retry:
		}
	}
	if err := ctx.Err(); err != nil {
		return "", usage, err
	}
	if text = strings.TrimSpace(b.String()); text == "" {
		return "", usage, errors.New("the model gave no summary")
	}
	return text, usage, nil
}
