package openai

import "github.com/go-json-experiment/json/jsontext"

// request is the body of POST /chat/completions.
type request struct {
	Messages      []message     `json:"messages"`
	Model         string        `json:"model"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
	Tools         []toolParam   `json:"tools,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// message is a message of any role.
type message struct {
	Content          any            `json:"content,omitzero"` // a string, or []contentPart
	ReasoningContent *string        `json:"reasoning_content,omitzero"`
	ReasoningDetails jsontext.Value `json:"reasoning_details,omitzero"`
	Role             string         `json:"role"`
	ToolCallID       string         `json:"tool_call_id,omitzero"` // of a result
	ToolCalls        []toolCall     `json:"tool_calls,omitempty"`  // of an answer
}

// contentPart is a text or an image.
type contentPart struct {
	ImageURL *imageURL `json:"image_url,omitzero"`
	Text     string    `json:"text,omitzero"`
	Type     string    `json:"type"`
}

type imageURL struct {
	URL string `json:"url"`
}

// toolCall is a call that the model made.
type toolCall struct {
	Function calledFunction `json:"function"`
	ID       string         `json:"id"`
	Type     string         `json:"type"`
}

type calledFunction struct {
	Arguments string `json:"arguments"`
	Name      string `json:"name"`
}

// toolParam is what the model may call.
type toolParam struct {
	Function function `json:"function"`
	Type     string   `json:"type"`
}

type function struct {
	Description string                    `json:"description"`
	Name        string                    `json:"name"`
	Parameters  map[string]jsontext.Value `json:"parameters"`
}
