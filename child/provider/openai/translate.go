package openai

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/wire"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

// maxImage is how many bytes of base64 are sent for one image (OpenAI takes 50
// MB for a whole request).
const maxImage = 20 << 20

// tools puts what a model may call into the service's words.
func tools(specs []tool.Spec) ([]sdk.ChatCompletionToolUnionParam, error) {
	var out []sdk.ChatCompletionToolUnionParam
	for _, t := range specs {
		function := shared.FunctionDefinitionParam{Name: t.Name, Description: param.NewOpt(t.Description)}
		if err := json.Unmarshal(t.InputSchema, &function.Parameters); err != nil {
			return nil, fmt.Errorf("input schema of tool %s: %w", t.Name, err)
		}
		out = append(out, sdk.ChatCompletionFunctionTool(function))
	}
	return out, nil
}

// translate puts a request into the service's words, but for its tools. Every
// call is followed by its result: one that is missing is made up, and a result
// without a call is left out, as are answers that say nothing. The reasoning of
// earlier answers goes along unless it is to be forgotten; reasoned says that
// there was some.
func translate(r provider.Request, forget bool) (params sdk.ChatCompletionNewParams, reasoned bool) {
	var out []sdk.ChatCompletionMessageParamUnion
	if r.System != "" {
		out = append(out, sdk.SystemMessage(r.System))
	}
	for i, m := range r.Messages {
		switch m.Role {
		case protocol.RoleSystem:
			out = append(out, sdk.SystemMessage(m.Content))
		case protocol.RoleUser:
			out = append(out, user(wire.Pictures(r, m, maxImage)))
		case protocol.RoleAssistant:
			if m.Content != "" || len(m.ToolCalls) > 0 {
				said := assistant(m)
				if !forget && giveBack(said.OfAssistant, m, r.Model) {
					reasoned = true
				}
				out = append(out, said)
				out = append(out, results(r, m.ToolCalls, r.Messages[i+1:])...)
			}
		case protocol.RoleTool: // went out with its call
		}
	}
	return sdk.ChatCompletionNewParams{
		Model:         r.Model,
		Messages:      out,
		StreamOptions: sdk.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
	}, reasoned
}

// user is a message of the user: plain text where there are no images, since not
// every service takes parts.
func user(text string, pictures []wire.Picture) sdk.ChatCompletionMessageParamUnion {
	if len(pictures) == 0 {
		return sdk.UserMessage(text)
	}
	var parts []sdk.ChatCompletionContentPartUnionParam
	if text != "" {
		parts = append(parts, sdk.TextContentPart(text))
	}
	for _, p := range pictures {
		parts = append(parts, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{
			URL: "data:" + p.Mime + ";base64," + p.Base64,
		}))
	}
	return sdk.UserMessage(parts)
}

func assistant(m protocol.Message) sdk.ChatCompletionMessageParamUnion {
	var said sdk.ChatCompletionAssistantMessageParam
	if m.Content != "" {
		said.Content.OfString = param.NewOpt(m.Content)
	}
	for _, c := range m.ToolCalls {
		said.ToolCalls = append(said.ToolCalls, sdk.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &sdk.ChatCompletionMessageFunctionToolCallParam{
				ID: c.ID,
				Function: sdk.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name: wire.FunctionName(c.Name), Arguments: arguments(c.Input),
				},
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

// results are the results of the calls. Images cannot stand in a result, so a
// message of the user follows that shows them.
func results(r provider.Request, calls []protocol.ToolCall, following []protocol.Message) []sdk.ChatCompletionMessageParamUnion {
	out := make([]sdk.ChatCompletionMessageParamUnion, 0, len(calls))
	var shown []wire.Picture
	var names []string
	for i, m := range wire.Results(calls, following) {
		text, pictures := wire.Pictures(r, m, maxImage)
		out = append(out, sdk.ToolMessage(text, calls[i].ID))
		if len(pictures) > 0 {
			shown = append(shown, pictures...)
			names = append(names, wire.FunctionName(calls[i].Name))
		}
	}
	if len(shown) > 0 {
		out = append(out, user("Images from the results of "+strings.Join(names, ", ")+":", shown))
	}
	return out
}
