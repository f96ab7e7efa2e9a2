package anthropic

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

// maxImage is how many bytes of base64 the service takes for one image.
const maxImage = 5 << 20

// What stands where the service would refuse to find nothing.
const (
	nothing   = "(nothing)"
	beginning = "(The beginning of this conversation is not shown.)"
)

// tools puts what a model may call into the service's words. They come first in
// the prompt; a mark on the last one keeps them in the cache whatever follows.
func tools(specs []tool.Spec) ([]toolParam, error) {
	var out []toolParam
	for _, t := range specs {
		schema := map[string]jsontext.Value{}
		if err := json.Unmarshal(t.InputSchema, &schema); err != nil {
			return nil, fmt.Errorf("input schema of tool %s: %w", t.Name, err)
		}
		if schema == nil { // null
			schema = map[string]jsontext.Value{}
		}
		schema["type"] = jsontext.Value(`"object"`)
		out = append(out, toolParam{Name: t.Name, Description: t.Description, InputSchema: schema})
	}
	if n := len(out); n > 0 {
		out[n-1].CacheControl = ephemeral
	}
	return out, nil
}

// draft is a request on its way into the service's words.
type draft struct {
	provider.Request
	maxTokens int
	forget    bool            // leave the reasoning of earlier answers out
	signed    bool            // such reasoning goes out
	used      map[string]bool // ids of calls: the service wants each once
	out       []message
}

// request is the request but for its tools. The service takes four marks for the
// cache: on the last tool, the end of the system prompt, the end of this request
// and the end of the one before it, which should be in the cache by now.
func (d *draft) request(o Options) request {
	system, rest := []string{d.System}, d.Messages
	for len(rest) > 0 && rest[0].Role == protocol.RoleSystem {
		system, rest = append(system, rest[0].Content), rest[1:]
	}
	d.translate(rest)
	r := request{
		Model: d.Model, MaxTokens: d.maxTokens, Stream: true, Messages: d.out, Thinking: d.thinking(o, rest),
	}
	for _, text := range system {
		if !blank(text) {
			r.System = append(r.System, textBlock(text))
		}
	}
	if n := len(r.System); n > 0 {
		r.System[n-1].mark()
	}
	for i := len(r.Messages) - 1; i >= max(0, len(r.Messages)-3); i -= 2 {
		content := r.Messages[i].Content
		content[len(content)-1].mark()
	}
	return r
}

// translate puts the conversation into the service's words. Every call is
// followed by its result: one that is missing is made up, and a result without a
// call is left out, as are answers that say nothing.
func (d *draft) translate(messages []protocol.Message) {
	for i, m := range messages {
		switch m.Role {
		case protocol.RoleSystem, protocol.RoleUser:
			d.add(user, d.user(m)...)
		case protocol.RoleAssistant:
			calls := d.calls(m.ToolCalls)
			d.add(assistant, d.assistant(m, calls)...)
			d.add(user, d.results(m.ToolCalls, calls, messages[i+1:])...)
		case protocol.RoleTool: // went out with its call
		}
	}
}

// add adds content to the conversation, in which the user has the first word and
// each side says all it has to say in one message.
func (d *draft) add(from role, content ...block) {
	if len(content) == 0 {
		return
	}
	if len(d.out) == 0 && from == assistant {
		d.out = append(d.out, message{Role: user, Content: []block{textBlock(beginning)}})
	}
	if n := len(d.out); n > 0 && d.out[n-1].Role == from {
		d.out[n-1].Content = append(d.out[n-1].Content, content...)
		return
	}
	d.out = append(d.out, message{Role: from, Content: content})
}

func (d *draft) user(m protocol.Message) []block {
	text, pictures := httpapi.Pictures(d.Request, m, maxImage)
	var content []block
	for _, p := range pictures {
		content = append(content, image(p))
	}
	switch {
	case !blank(text):
		content = append(content, textBlock(text))
	case len(content) == 0:
		content = append(content, textBlock(nothing))
	}
	return content
}

// assistant is an answer; its calls are translated already.
func (d *draft) assistant(m protocol.Message, calls []block) []block {
	if blank(m.Content) && len(calls) == 0 {
		return nil
	}
	if blocks, ok := d.reasoned(m); ok {
		d.signed = true
		return assemble(m, blocks, calls)
	}
	var content []block
	if !blank(m.Content) {
		content = append(content, textBlock(m.Content))
	}
	return append(content, calls...)
}

// calls translates the calls of an answer. The service wants ids of A-Z, a-z,
// 0-9, _ and -, each once in a conversation, and objects as input.
func (d *draft) calls(calls []protocol.ToolCall) []block {
	out := make([]block, 0, len(calls))
	for _, c := range calls {
		id := httpapi.ReplaceSpecial(c.ID)
		for n := 2; id == "" || d.used[id]; n++ {
			id = fmt.Sprintf("%s_%d", httpapi.ReplaceSpecial(c.ID), n)
		}
		d.used[id] = true
		input := c.Input
		if input.Kind() != '{' || !input.IsValid() {
			input = wrapped(input)
		}
		out = append(out, block{Type: typeToolUse, ID: id, Name: httpapi.FunctionName(c.Name), Input: input})
	}
	return out
}

// wrapped is an object around input that is none.
func wrapped(input jsontext.Value) jsontext.Value {
	if !input.IsValid() {
		return jsontext.Value("{}")
	}
	return jsontext.Value(`{"input":` + string(input) + `}`)
}

// results are the results of the calls, all in one message.
func (d *draft) results(calls []protocol.ToolCall, translated []block, following []protocol.Message) []block {
	var out []block
	for i, m := range httpapi.Results(calls, following) {
		result := block{Type: typeToolResult, ToolUseID: translated[i].ID, IsError: m.IsError}
		text, pictures := httpapi.Pictures(d.Request, m, maxImage)
		if !blank(text) {
			result.Content = append(result.Content, textBlock(text))
		}
		for _, p := range pictures {
			result.Content = append(result.Content, image(p))
		}
		out = append(out, result)
	}
	return out
}

func image(p httpapi.Picture) block {
	return block{Type: typeImage, Source: &source{Type: "base64", MediaType: p.Mime, Data: p.Base64}}
}

// blank reports whether a text has nothing to see, which the service refuses.
func blank(text string) bool { return strings.TrimSpace(text) == "" }
