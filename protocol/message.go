package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Role says who speaks in a [Message].
type Role string

// The roles of a conversation.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool" // the result of one tool call
	RoleSystem    Role = "system"
)

// Message is one entry of a conversation, the same for every provider: what
// get_messages returns and what a saved session holds.
type Message struct {
	Role Role `json:"role" enum:"user,assistant,tool,system"`
	// Content is the text. For RoleTool it is the tool's result.
	Content string `json:"content" wire:"default"`
	// Thinking is the model's reasoning where the provider shows it.
	Thinking string `json:"thinking,omitempty" wire:"default"`
	// ThinkingSignature is what the provider wants back with Thinking, opaque.
	ThinkingSignature string `json:"thinking_signature,omitempty" wire:"default"`
	// ToolCalls are the calls an assistant asks for, in its order.
	ToolCalls []ToolCall `json:"tool_calls,omitempty" wire:"default"`
	// ToolCallID and ToolName tie a RoleTool message to its call.
	ToolCallID string `json:"tool_call_id,omitempty" wire:"default"`
	ToolName   string `json:"tool_name,omitempty" wire:"default"`
	// IsError marks a tool result that reports a failure.
	IsError bool `json:"is_error,omitzero" wire:"default"`
	// Interrupted marks an answer that was cut off by an abort or a crash.
	Interrupted bool `json:"interrupted,omitzero" wire:"default"`
	// LeftOut marks a message of a turn that the model's service refused: requests do without it. It
	// is not saved with the message.
	LeftOut bool `json:"left_out,omitzero" wire:"default"`
	// TurnID is the id of the prompt that this message belongs to.
	TurnID string `json:"turn_id,omitempty" wire:"default"`
	// Attachments are the files that came with a user's message.
	Attachments []Attachment `json:"attachments,omitempty" wire:"default"`
	// Source says where a user's message came from, and SourceAgentID which agent
	// wrote it, as the sender said; "" if it said nothing.
	Source        string `json:"source,omitempty" wire:"default"`
	SourceAgentID string `json:"source_agent_id,omitempty" wire:"default"`
	// Images go with the text. Their bytes are kept beside the session.
	Images []Image `json:"images,omitempty" wire:"default"`
	// Changed are the files that the call of a RoleTool message made or changed,
	// absolute, as its tool recorded them.
	Changed []string `json:"changed,omitempty" wire:"default"`
	// Created are those of Changed that were not there before.
	Created []string `json:"created,omitempty" wire:"default"`
	// At is when the message was complete, UTC.
	At time.Time `json:"at,omitzero" wire:"default"`
}

// ToolCall is one call of a tool that an assistant asked for.
type ToolCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Input is the call's JSON input as the model gave it.
	Input jsontext.Value `json:"input"`
}

// Image is a picture of a message. Its bytes are found by their digest.
type Image struct {
	Name   string `json:"name,omitempty" wire:"default"`
	Mime   string `json:"mime"`   // image/png, image/jpeg, image/gif or image/webp
	Size   int64  `json:"size"`   // bytes
	SHA256 string `json:"sha256"` // hexadecimal
}

// MaxSource bounds the source of a message and the id of its sender, in bytes.
const MaxSource = 128

// CheckSource reports why text cannot be the source of a message, or the id of the agent
// that sent it: it is empty, longer than MaxSource bytes, not UTF-8, or has control
// characters.
func CheckSource(text string) error {
	switch {
	case text == "" || len(text) > MaxSource:
		return fmt.Errorf("want 1 to %d bytes, have %d", MaxSource, len(text))
	case !utf8.ValidString(text):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("contains a control character")
	default:
		return nil
	}
}
