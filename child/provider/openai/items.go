package openai

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

// reasoningItem is the kind of reasoning of the responses: Opaque is the item as it goes back.
const reasoningItem httpapi.Kind = "reasoning_item"

// itemsRequest is the body of POST /responses.
type itemsRequest struct {
	Include         []string        `json:"include,omitempty"`
	Input           []inputItem     `json:"input"`
	Instructions    string          `json:"instructions,omitzero"`
	MaxOutputTokens int             `json:"max_output_tokens,omitzero"`
	Model           string          `json:"model"`
	Reasoning       *reasoningParam `json:"reasoning,omitzero"`
	Store           bool            `json:"store"`
	Stream          bool            `json:"stream"`
	Temperature     *float64        `json:"temperature,omitzero"`
	Tools           []functionTool  `json:"tools,omitempty"`
}

type reasoningParam struct {
	Effort  string `json:"effort"`
	Summary string `json:"summary,omitzero"`
}

// inputItem is a message, a call, the result of one, or reasoning, which is raw.
type inputItem struct {
	raw jsontext.Value // the item, if it is reasoning

	Arguments string `json:"arguments,omitzero"` // of a function_call
	CallID    string `json:"call_id,omitzero"`   // of a call and its result
	Content   any    `json:"content,omitzero"`   // of a message: a string, or []inputPart
	Name      string `json:"name,omitzero"`      // of a function_call
	Output    any    `json:"output,omitzero"`    // of a function_call_output: as Content
	Role      string `json:"role,omitzero"`      // of a message
	Type      string `json:"type"`
}

// MarshalJSON writes reasoning as it came.
func (i inputItem) MarshalJSON() ([]byte, error) {
	if i.raw != nil {
		return i.raw, nil
	}
	type plain inputItem
	return marshal(plain(i))
}

// inputPart is a text or an image.
type inputPart struct {
	ImageURL string `json:"image_url,omitzero"`
	Text     string `json:"text,omitzero"`
	Type     string `json:"type"`
}

// functionTool is what the model may call.
type functionTool struct {
	Description string                    `json:"description"`
	Name        string                    `json:"name"`
	Parameters  map[string]jsontext.Value `json:"parameters"`
	Strict      bool                      `json:"strict"`
	Type        string                    `json:"type"`
}

func functionTools(specs []tool.Spec) ([]functionTool, error) {
	params, err := tools(specs)
	var out []functionTool
	for _, p := range params {
		out = append(out, functionTool{Type: p.Type, Name: p.Function.Name, Description: p.Function.Description, Parameters: p.Function.Parameters})
	}
	return out, err
}

// parameters is [request.parameters]; the words are those by which the service names what it
// refuses.
func (q *itemsRequest) parameters(p *provider.Parameters, refused map[string]bool) (sent []string) {
	set := func(word string, given bool) bool {
		if !given || refused[word] {
			return false
		}
		sent = append(sent, word)
		return true
	}
	if set("ncrypted", true) {
		q.Include = []string{"reasoning.encrypted_content"}
	}
	if p == nil {
		return sent
	}
	summary := ""
	if set("summar", p.Effort != "") {
		summary = "auto"
	}
	if set("reasoning", p.Effort != "") {
		q.Reasoning = &reasoningParam{Effort: p.Effort, Summary: summary}
	}
	if set("temperature", p.Temperature != nil) {
		q.Temperature = p.Temperature
	}
	if set("max_output_tokens", p.MaxOutput > 0) {
		q.MaxOutputTokens = p.MaxOutput
	}
	return sent
}

// toItems is translate for the responses.
func toItems(r provider.Request, forget bool) (question itemsRequest, reasoned bool) {
	out := []inputItem{}
	for i, m := range r.Messages {
		switch m.Role {
		case protocol.RoleSystem:
			out = append(out, inputItem{Type: "message", Role: "system", Content: m.Content})
		case protocol.RoleUser:
			out = append(out, inputItem{Type: "message", Role: "user", Content: parts(httpapi.Pictures(r, m, maxImage))})
		case protocol.RoleAssistant:
			if m.Content == "" && len(m.ToolCalls) == 0 {
				continue
			}
			var blocks []httpapi.Block
			if !forget {
				blocks, _ = httpapi.ReusableBlocks(m, r.Model, reasoningItem)
			}
			reasoned = reasoned || blocks != nil
			out = append(out, answerItems(m, blocks)...)
			for j, result := range httpapi.Results(m.ToolCalls, r.Messages[i+1:]) {
				out = append(out, inputItem{
					Type: "function_call_output", CallID: m.ToolCalls[j].ID, Output: parts(httpapi.Pictures(r, result, maxImage)),
				})
			}
		case protocol.RoleTool: // went out with its call
		}
	}
	return itemsRequest{Model: r.Model, Instructions: r.System, Input: out, Stream: true}, reasoned
}

// answerItems puts an answer together: as it was if its reasoning goes back.
func answerItems(m protocol.Message, blocks []httpapi.Block) (out []inputItem) {
	if blocks == nil {
		blocks = append(blocks, httpapi.Block{Kind: httpapi.KindText, Bytes: len(m.Content)})
		for range m.ToolCalls {
			blocks = append(blocks, httpapi.Block{Kind: httpapi.KindCall})
		}
	}
	said, calls := m.Content, m.ToolCalls
	for _, b := range blocks {
		switch b.Kind {
		case httpapi.KindText:
			if b.Bytes > 0 {
				out = append(out, inputItem{Type: "message", Role: "assistant", Content: said[:b.Bytes]})
			}
			said = said[b.Bytes:]
		case httpapi.KindCall:
			out = append(out, inputItem{
				Type: "function_call", CallID: calls[0].ID, Name: httpapi.FunctionName(calls[0].Name), Arguments: arguments(calls[0].Input),
			})
			calls = calls[1:]
		case reasoningItem:
			if item := jsontext.Value(b.Opaque); item.Kind() == '{' && item.IsValid() {
				out = append(out, inputItem{raw: item})
			}
		}
	}
	return out
}

// parts is a text, with its images if there are any.
func parts(text string, pictures []httpapi.Picture) any {
	if len(pictures) == 0 {
		return text
	}
	var all []inputPart
	if strings.TrimSpace(text) != "" {
		all = append(all, inputPart{Type: "input_text", Text: text})
	}
	for _, p := range pictures {
		all = append(all, inputPart{Type: "input_image", ImageURL: "data:" + p.Mime + ";base64," + p.Base64})
	}
	return all
}
