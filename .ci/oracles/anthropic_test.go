package oracles_test

import (
	"cmp"
	"errors"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/go-json-experiment/json"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/anthropic"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/protocol"
)

func claude(t *testing.T, o httpapi.Options) provider.Provider {
	t.Helper()
	o.BaseURL, o.AuthMethod = cmp.Or(o.BaseURL, "http://h"), httpapi.XAPIKey
	o.APIKey, o.MaxAttempts = httpapitest.Secret, 1
	p, err := anthropic.New(anthropic.Options{Options: o})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func claudeSDK(options ...option.RequestOption) sdk.Client {
	return sdk.NewClient(append(options, option.WithAPIKey(httpapitest.Secret), option.WithMaxRetries(0))...)
}

func TestAnthropicStreams(t *testing.T) {
	each(t, "anthropic/*.sse", func(t *testing.T, _ string, stream []byte) {
		compare(t, anthropicMeaning(t, stream), ours(t, claude(t, httpapi.Options{HTTPClient: client(stream)})))
	})
}

// anthropicMeaning is what the SDK makes of an answer.
func anthropicMeaning(t *testing.T, stream []byte) (m meaning) {
	t.Helper()
	c := claudeSDK(option.WithHTTPClient(client(stream)))
	events := c.Messages.NewStreaming(t.Context(), sdk.MessageNewParams{Model: "model", MaxTokens: 1})
	defer events.Close()
	var whole sdk.Message
	inputs := map[int]string{} // the SDK's Message has {} for one that was cut off
	for events.Next() {
		event := events.Current()
		if err := whole.Accumulate(event); err != nil {
			t.Fatal(err)
		}
		inputs[int(event.Index)] += event.Delta.PartialJSON
	}
	if events.Err() != nil || whole.StopReason == "" {
		return meaning{Failed: true}
	}
	for i, block := range whole.Content {
		switch block := block.AsAny().(type) {
		case sdk.TextBlock:
			m.Text += block.Text
		case sdk.ThinkingBlock:
			m.Thinking += block.Thinking
			m.Opaque = append(m.Opaque, block.Signature)
		case sdk.RedactedThinkingBlock:
			m.Opaque = append(m.Opaque, block.Data)
		case sdk.ToolUseBlock:
			m.Calls = append(m.Calls, call{block.ID, block.Name, cmp.Or(inputs[i], string(block.Input))})
		}
	}
	m.Model = string(whole.Model)
	u := whole.Usage
	m.Usage = usage{
		uint64(u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens), uint64(u.OutputTokens),
		uint64(u.CacheReadInputTokens), uint64(u.CacheCreationInputTokens),
	}
	switch whole.StopReason {
	case sdk.StopReasonMaxTokens, sdk.StopReasonPauseTurn, sdk.StopReasonModelContextWindowExceeded:
		m.Reason = provider.FinishLength
	case sdk.StopReasonToolUse:
		m.Reason = provider.FinishToolCalls
	case sdk.StopReasonRefusal:
		m.Reason = provider.FinishFiltered
	default:
		m.Reason = provider.FinishStop
	}
	return m
}

func TestAnthropicRequests(t *testing.T) {
	each(t, "anthropic/*.json", func(t *testing.T, _ string, body []byte) {
		var params sdk.MessageNewParams
		if err := json.Unmarshal(body, &params); err != nil {
			t.Fatal(err)
		}
		again, err := params.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		compareRequests(t, again, body)
	})
}

func TestAnthropicErrors(t *testing.T) {
	compareErrors(t, func(url string) fault {
		c := claudeSDK(option.WithBaseURL(url))
		_, err := c.Messages.New(t.Context(), sdk.MessageNewParams{Model: "model", MaxTokens: 1})
		theirs, ok := errors.AsType[*sdk.Error](err)
		if !ok {
			t.Fatal(err)
		}
		var object struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal([]byte(theirs.RawJSON()), &object); err != nil {
			t.Fatal(err)
		}
		return fault{string(theirs.Type()), object.Error.Message}
	},
		`{"type":"error","error":{"type":"rate_limit_error","message":"slow down"},"request_id":"req_1"}`,
		`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210402 tokens > 200000 maximum"}}`)
}

func TestAnthropicModels(t *testing.T) {
	const list = `{"data":[{"type":"model","id":"claude-opus-4-6","display_name":"Claude Opus 4.6","created_at":"2026-02-04T00:00:00Z",` +
		`"max_input_tokens":200000,"max_tokens":128000}],"has_more":false,"first_id":"claude-opus-4-6","last_id":"claude-opus-4-6"}`
	compareModels(t, list, func(url string) (theirs []protocol.Model) {
		c := claudeSDK(option.WithBaseURL(url))
		page, err := c.Models.List(t.Context(), sdk.ModelListParams{Limit: sdk.Int(1000)})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Data {
			theirs = append(theirs, protocol.Model{
				Provider: "p", ModelID: m.ID, ModelName: m.DisplayName, ContextWindow: uint64(m.MaxInputTokens),
			})
		}
		return theirs
	}, func(url string) provider.Provider { return claude(t, httpapi.Options{Name: "p", BaseURL: url}) })
}
