package anthropic

import (
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/provider"
)

// request is the body of POST /v1/messages.
type request struct {
	MaxTokens    int             `json:"max_tokens"`
	Messages     []message       `json:"messages"`
	Model        string          `json:"model"`
	OutputConfig *outputConfig   `json:"output_config,omitzero"`
	Stream       bool            `json:"stream"`
	System       []block         `json:"system,omitempty"`
	Temperature  *float64        `json:"temperature,omitzero"`
	Thinking     *thinkingConfig `json:"thinking,omitzero"`
	Tools        []toolParam     `json:"tools,omitempty"`
}

// outputConfig says how much a model is to spend on an answer.
type outputConfig struct {
	Effort string `json:"effort"`
}

// parameters sets what the answer is to be like, but for what the model's service refused, and
// returns the names of what may be left out. A model that reasons takes no temperature.
func (q *request) parameters(r provider.Request, refused map[string]bool) (sent []string) {
	p := r.Parameters
	if p == nil {
		return nil
	}
	reasons := q.Thinking != nil && q.Thinking.Type != ThinkingDisabled
	if p.Temperature != nil && !reasons && !refused["temperature"] {
		q.Temperature, sent = new(min(*p.Temperature, 1)), append(sent, "temperature")
	}
	if p.Effort != "" && takesEffort(r.Model) && !refused["effort"] {
		q.OutputConfig, sent = &outputConfig{Effort: p.Effort}, append(sent, "effort")
	}
	return sent
}

// message is one side's turn in a conversation. Its Content is not empty.
type message struct {
	Content []block `json:"content"`
	Role    role    `json:"role"`
}

type role string

const (
	user      role = "user"
	assistant role = "assistant"
)

// block is a piece of a message. Type says which members it has.
type block struct {
	CacheControl *cacheControl  `json:"cache_control,omitzero"`
	Content      []block        `json:"content,omitempty"`    // of a tool_result: text and images
	Data         *string        `json:"data,omitzero"`        // of redacted_thinking
	ID           string         `json:"id,omitzero"`          // of a tool_use
	Input        jsontext.Value `json:"input,omitzero"`       // of a tool_use: an object
	IsError      bool           `json:"is_error,omitzero"`    // of a tool_result
	Name         string         `json:"name,omitzero"`        // of a tool_use
	Signature    *string        `json:"signature,omitzero"`   // of thinking
	Source       *source        `json:"source,omitzero"`      // of an image
	Text         string         `json:"text,omitzero"`        // of a text; never empty
	Thinking     *string        `json:"thinking,omitzero"`    // of thinking
	ToolUseID    string         `json:"tool_use_id,omitzero"` // of a tool_result
	Type         blockType      `json:"type"`
}

// blockType is what a block is, in requests and in answers.
type blockType string

const (
	typeText       blockType = "text"
	typeImage      blockType = "image"
	typeThinking   blockType = "thinking"
	typeRedacted   blockType = "redacted_thinking"
	typeToolUse    blockType = "tool_use"
	typeToolResult blockType = "tool_result"
)

func textBlock(s string) block { return block{Type: typeText, Text: s} }

// mark asks the service to keep all up to the end of the block in its cache. It
// does not take a mark on reasoning.
func (b *block) mark() {
	if b.Type != typeThinking && b.Type != typeRedacted {
		b.CacheControl = ephemeral
	}
}

// cacheControl is a mark for the prompt cache.
type cacheControl struct {
	Type string `json:"type"`
}

var ephemeral = &cacheControl{Type: "ephemeral"}

// source is an image.
type source struct {
	Data      string `json:"data"`
	MediaType string `json:"media_type"`
	Type      string `json:"type"`
}

// thinkingConfig says how the model is to think.
type thinkingConfig struct {
	BudgetTokens int      `json:"budget_tokens,omitzero"`
	Display      string   `json:"display,omitzero"`
	Type         Thinking `json:"type"`
}

// toolParam is what the model may call.
type toolParam struct {
	CacheControl *cacheControl             `json:"cache_control,omitzero"`
	Description  string                    `json:"description"`
	InputSchema  map[string]jsontext.Value `json:"input_schema"`
	Name         string                    `json:"name"`
}
