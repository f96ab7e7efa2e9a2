package openai

import (
	"cmp"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

// noResult stands for the result of a call that never got one: services refuse
// a conversation in which a call is left open.
const noResult = "The call was interrupted; there is no result."

// noName stands for the name of a call that the model gave none: services refuse
// one that is empty.
const noName = "unnamed"

// translate puts a request into the service's words.
func translate(r provider.Request) (sdk.ChatCompletionNewParams, error) {
	params := sdk.ChatCompletionNewParams{
		Model:         r.Model,
		Messages:      messages(r),
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}
	for _, t := range r.Tools {
		function := shared.FunctionDefinitionParam{Name: t.Name, Description: param.NewOpt(t.Description)}
		if err := json.Unmarshal(t.InputSchema, &function.Parameters); err != nil {
			return params, fmt.Errorf("input schema of tool %s: %w", t.Name, err)
		}
		params.Tools = append(params.Tools, sdk.ChatCompletionFunctionTool(function))
	}
	return params, nil
}

// messages translates the conversation. Every call is followed by its result:
// one that is missing is made up, and a result without a call is left out, as
// are answers that say nothing.
func messages(r provider.Request) []sdk.ChatCompletionMessageParamUnion {
	var out []sdk.ChatCompletionMessageParamUnion
	if r.System != "" {
		out = append(out, sdk.SystemMessage(r.System))
	}
	for i, m := range r.Messages {
		switch m.Role {
		case protocol.RoleSystem:
			out = append(out, sdk.SystemMessage(m.Content))
		case protocol.RoleUser:
			out = append(out, sdk.UserMessage(m.Content))
		case protocol.RoleAssistant:
			if m.Content != "" || len(m.ToolCalls) > 0 {
				out = append(out, assistant(m))
				out = append(out, results(m.ToolCalls, r.Messages[i+1:])...)
			}
		case protocol.RoleTool: // went out with its call
		}
	}
	return out
}

func assistant(m protocol.Message) sdk.ChatCompletionMessageParamUnion {
	var said sdk.ChatCompletionAssistantMessageParam
	if m.Content != "" {
		said.Content.OfString = param.NewOpt(m.Content)
	}
	for _, c := range m.ToolCalls {
		said.ToolCalls = append(said.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID:       c.ID,
				Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{Name: cmp.Or(c.Name, noName), Arguments: arguments(c.Input)},
			},
		})
	}
	return sdk.ChatCompletionMessageParamUnion{OfAssistant: &said}
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

// results finds the results of the calls among the messages that follow, up to
// the next message that is no result.
func results(calls []protocol.ToolCall, following []protocol.Message) []sdk.ChatCompletionMessageParamUnion {
	given := map[string]string{}
	for _, m := range following {
		if m.Role != protocol.RoleTool {
			break
		}
		given[m.ToolCallID] = m.Content
	}
	out := make([]sdk.ChatCompletionMessageParamUnion, 0, len(calls))
	for _, c := range calls {
		text, ok := given[c.ID]
		if !ok {
			text = noResult
		}
		out = append(out, sdk.ToolMessage(text, c.ID))
	}
	return out
}
