package oracles_test

import (
	"cmp"
	"errors"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/child/provider/openai"
	"nexus.internal/protocol"
)

func gpt(t *testing.T, o openai.Options) provider.Provider {
	t.Helper()
	o.BaseURL, o.AuthMethod = cmp.Or(o.BaseURL, "http://h"), httpapi.Bearer
	o.APIKey, o.MaxAttempts = httpapitest.Secret, 1
	p, err := openai.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gptSDK(options ...option.RequestOption) sdk.Client {
	return sdk.NewClient(append(options, option.WithAPIKey(httpapitest.Secret), option.WithMaxRetries(0))...)
}

func TestOpenAIStreams(t *testing.T) {
	each(t, "openai/*.sse", func(t *testing.T, _ string, stream []byte) {
		compare(t, openAIMeaning(t, stream), ours(t, gpt(t, openai.Options{HTTPClient: client(stream)})))
	})
}

// openAIMeaning is what the SDK makes of an answer. What compatible services add
// to OpenAI's is read out of the members that the SDK does not know.
func openAIMeaning(t *testing.T, stream []byte) (m meaning) {
	t.Helper()
	c := gptSDK(option.WithHTTPClient(client(stream)))
	events := c.Chat.Completions.NewStreaming(t.Context(), sdk.ChatCompletionNewParams{Model: "model"})
	defer events.Close()
	var whole sdk.ChatCompletionAccumulator
	var reason, thought string
	for events.Next() {
		chunk := events.Current()
		chunk.ID = "one" // Azure has events without an id, which the accumulator refuses
		for i, choice := range chunk.Choices {
			reason = cmp.Or(choice.FinishReason, reason) // OpenRouter has an event without one after it
			added := choice.Delta.JSON.ExtraFields
			thought += cmp.Or(literal(added["reasoning_content"].Raw()), literal(added["reasoning"].Raw()))
			for j := range choice.Delta.ToolCalls {
				separate(&chunk.Choices[i].Delta.ToolCalls[j], &whole)
			}
		}
		if !whole.AddChunk(chunk) {
			t.Fatalf("the SDK does not take %s", chunk.RawJSON())
		}
		m.Usage.CacheRead = max(m.Usage.CacheRead, number(t, chunk.Usage.JSON.ExtraFields["prompt_cache_hit_tokens"].Raw()))
		m.Usage.CacheCreation = max(m.Usage.CacheCreation, uint64(chunk.Usage.PromptTokensDetails.CacheWriteTokens))
	}
	if events.Err() != nil || reason == "" {
		return meaning{Failed: true}
	}
	m.Thinking = unquoted(t, jsontext.Value(`"`+thought+`"`)) // as a whole: a character may be in two events
	choice := whole.Choices[0]
	m.Text = choice.Message.Content + choice.Message.Refusal
	for _, c := range choice.Message.ToolCalls {
		m.Calls = append(m.Calls, call{c.ID, c.Function.Name, c.Function.Arguments})
	}
	m.Model = whole.Model
	m.Usage.Input, m.Usage.Output = uint64(whole.Usage.PromptTokens), uint64(whole.Usage.CompletionTokens)
	m.Usage.CacheRead = max(m.Usage.CacheRead, uint64(whole.Usage.PromptTokensDetails.CachedTokens))
	switch reason {
	case "length":
		m.Reason = provider.FinishLength
	case "tool_calls", "function_call":
		m.Reason = provider.FinishToolCalls
	case "content_filter":
		m.Reason = provider.FinishFiltered
	default:
		m.Reason = provider.FinishStop
	}
	return m
}

func TestOpenAIRequests(t *testing.T) {
	each(t, "openai/*.json", func(t *testing.T, _ string, body []byte) {
		var params sdk.ChatCompletionNewParams
		if err := json.Unmarshal(body, &params); err != nil {
			t.Fatal(err)
		}
		again, err := params.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		compareRequests(t, again, body, "reasoning_content", "reasoning_details") // are not OpenAI's own
	})
}

// separate gives a call an index of its own where a service (Ollama) gives all
// of them the same, and an id to each: the accumulator would make them one.
func separate(piece *sdk.ChatCompletionChunkChoiceDeltaToolCall, whole *sdk.ChatCompletionAccumulator) {
	if piece.ID == "" || len(whole.Choices) == 0 {
		return
	}
	calls := whole.Choices[0].Message.ToolCalls
	if int(piece.Index) < len(calls) && calls[piece.Index].ID != piece.ID {
		piece.Index = int64(len(calls))
	}
}

// literal is the inside of a string, which may be missing.
func literal(raw string) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return raw[1 : len(raw)-1]
}

// number is a member that may be missing.
func number(t *testing.T, raw string) (n uint64) {
	t.Helper()
	if raw == "" {
		return 0
	}
	if err := json.Unmarshal([]byte(raw), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOpenAIErrors(t *testing.T) {
	compareErrors(t, func(url string) fault {
		c := gptSDK(option.WithBaseURL(url))
		_, err := c.Chat.Completions.New(t.Context(), sdk.ChatCompletionNewParams{Model: "model"})
		theirs, ok := errors.AsType[*sdk.Error](err)
		if !ok {
			t.Fatal(err)
		}
		return fault{theirs.Code, theirs.Message}
	},
		`{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
		`{"error":{"message":"Your messages resulted in 9000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`)
}

func TestOpenAIModels(t *testing.T) {
	const list = `{"object":"list","data":[{"id":"gpt-4.1","object":"model","created":1,"owned_by":"openai"},{"id":"o3","object":"model","created":1,"owned_by":"openai"}]}`
	compareModels(t, list, func(url string) (theirs []protocol.Model) {
		c := gptSDK(option.WithBaseURL(url + "/v1"))
		page, err := c.Models.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Data {
			theirs = append(theirs, protocol.Model{Provider: "p", ModelID: m.ID, ModelName: m.ID})
		}
		return theirs
	}, func(url string) provider.Provider { return gpt(t, openai.Options{Name: "p", BaseURL: url + "/v1"}) })
}
