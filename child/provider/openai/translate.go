package openai

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

// maxImage is how many bytes of base64 are sent for one image (OpenAI takes 50
// MB for a whole request).
const maxImage = 20 << 20

// tools puts what a model may call into the service's words.
func tools(specs []tool.Spec) ([]toolParam, error) {
	var out []toolParam
	for _, t := range specs {
		f := function{Name: t.Name, Description: t.Description}
		if err := json.Unmarshal(t.InputSchema, &f.Parameters); err != nil {
			return nil, fmt.Errorf("input schema of tool %s: %w", t.Name, err)
		}
		out = append(out, toolParam{Type: "function", Function: f})
	}
	return out, nil
}

// translate puts a request into the service's words, but for its tools. Every
// call is followed by its result: one that is missing is made up, and a result
// without a call is left out, as are answers that say nothing. The reasoning of
// earlier answers goes along unless it is to be forgotten; reasoned says that
// there was some.
func translate(r provider.Request, forget bool) (question request, reasoned bool) {
	var out []message
	if r.System != "" {
		out = append(out, message{Role: "system", Content: r.System})
	}
	for i, m := range r.Messages {
		switch m.Role {
		case protocol.RoleSystem:
			out = append(out, message{Role: "system", Content: m.Content})
		case protocol.RoleUser:
			out = append(out, user(httpapi.Pictures(r, m, maxImage)))
		case protocol.RoleAssistant:
			if m.Content != "" || len(m.ToolCalls) > 0 {
				said := assistant(m)
				if !forget && restoreReasoning(&said, m, r.Model) {
					reasoned = true
				}
				out = append(out, said)
				out = append(out, results(r, m.ToolCalls, r.Messages[i+1:])...)
			}
		case protocol.RoleTool: // went out with its call
		}
	}
	if strings.HasPrefix(r.Model, "anthropic/") {
		markForCache(out)
	}
	return request{Model: r.Model, Messages: out, Stream: true}, reasoned
}

// markForCache asks aggregators (OpenRouter) to have Anthropic keep the request in its cache up to
// the system prompt and to each of the user's last two messages: other services keep it unasked.
func markForCache(messages []message) {
	system, users := 1, 2
	for i := len(messages) - 1; i >= 0 && system+users > 0; i-- {
		left := &users
		if messages[i].Role == "system" {
			left = &system
		} else if messages[i].Role != "user" {
			continue
		}
		if *left == 0 {
			continue
		}
		content, ok := messages[i].Content.([]contentPart)
		if text, plain := messages[i].Content.(string); plain && text != "" {
			content, ok = []contentPart{{Type: "text", Text: text}}, true
		}
		for j := len(content) - 1; ok && j >= 0; j-- {
			if content[j].Type == "text" {
				content[j].CacheControl = &cacheControl{Type: "ephemeral"}
				messages[i].Content = content
				*left--
				break
			}
		}
	}
}

// user is a message of the user: plain text where there are no images, since not
// every service takes parts.
func user(text string, pictures []httpapi.Picture) message {
	if len(pictures) == 0 {
		return message{Role: "user", Content: text}
	}
	var parts []contentPart
	if text != "" {
		parts = append(parts, contentPart{Type: "text", Text: text})
	}
	for _, p := range pictures {
		parts = append(parts, contentPart{Type: "image_url", ImageURL: &imageURL{URL: "data:" + p.Mime + ";base64," + p.Base64}})
	}
	return message{Role: "user", Content: parts}
}

func assistant(m protocol.Message) message {
	said := message{Role: "assistant"}
	if m.Content != "" {
		said.Content = m.Content
	}
	for _, c := range m.ToolCalls {
		said.ToolCalls = append(said.ToolCalls, toolCall{
			Type: "function", ID: c.ID, Function: calledFunction{Name: httpapi.FunctionName(c.Name), Arguments: arguments(c.Input)},
		})
	}
	return said
}

// arguments is a call's input as the model wrote it. Input that was not JSON
// was kept as a JSON string.
func arguments(input jsontext.Value) string {
	if input.Kind() != '"' {
		return string(input)
	}
	text, err := jsontext.AppendUnquote(nil, input)
	if err != nil {
		return "{}"
	}
	return string(text)
}

// results are the results of the calls. Images cannot stand in a result, so a
// message of the user follows that shows them.
func results(r provider.Request, calls []protocol.ToolCall, following []protocol.Message) []message {
	out := make([]message, 0, len(calls))
	var shown []httpapi.Picture
	var names []string
	for i, m := range httpapi.Results(calls, following) {
		text, pictures := httpapi.Pictures(r, m, maxImage)
		out = append(out, message{Role: "tool", Content: text, ToolCallID: calls[i].ID})
		if len(pictures) > 0 {
			shown = append(shown, pictures...)
			names = append(names, httpapi.FunctionName(calls[i].Name))
		}
	}
	if len(shown) > 0 {
		out = append(out, user("Images from the results of "+strings.Join(names, ", ")+":", shown))
	}
	return out
}

// request is the body of POST /chat/completions.
type request struct {
	MaxCompletionTokens int            `json:"max_completion_tokens,omitzero"`
	MaxTokens           int            `json:"max_tokens,omitzero"`
	Messages            []message      `json:"messages"`
	Model               string         `json:"model"`
	ReasoningEffort     string         `json:"reasoning_effort,omitzero"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options,omitzero"`
	Temperature         *float64       `json:"temperature,omitzero"`
	Tools               []toolParam    `json:"tools,omitempty"`
}

// parameters sets what the answer is to be like, but for what the model's service refused, and
// returns the names of what may be left out. Where max_tokens is refused, max_completion_tokens is
// what OpenAI's models that reason call it; services that know only the older name ignore this one.
func (q *request) parameters(p *provider.Parameters, refused map[string]bool) (sent []string) {
	set := func(name string, given bool) bool {
		if !given || refused[name] {
			return false
		}
		sent = append(sent, name)
		return true
	}
	if set("stream_options", true) { // Mistral counts without being asked
		q.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if p == nil {
		return sent
	}
	if set("max_tokens", p.MaxOutput > 0) {
		q.MaxTokens = p.MaxOutput
	} else if set("max_completion_tokens", p.MaxOutput > 0) {
		q.MaxCompletionTokens = p.MaxOutput
	}
	if set("temperature", p.Temperature != nil) {
		q.Temperature = p.Temperature
	}
	if set("reasoning_effort", p.Effort != "") {
		q.ReasoningEffort = p.Effort
	}
	return sent
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
	CacheControl *cacheControl `json:"cache_control,omitzero"`
	ImageURL     *imageURL     `json:"image_url,omitzero"`
	Text         string        `json:"text,omitzero"`
	Type         string        `json:"type"`
}

type cacheControl struct {
	Type string `json:"type"`
}

type imageURL struct {
	URL string `json:"url"`
}

// toolCall is a call that the model made.
type toolCall struct {
	ExtraContent jsontext.Value `json:"extra_content,omitzero"`
	Function     calledFunction `json:"function"`
	ID           string         `json:"id"`
	Type         string         `json:"type"`
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
