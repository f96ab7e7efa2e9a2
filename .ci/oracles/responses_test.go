package oracles_test

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openai/openai-go/v3/option"
	sdk "github.com/openai/openai-go/v3/responses"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/child/provider/openai"
)

func TestResponsesStreams(t *testing.T) {
	each(t, "openai-responses/*.sse", func(t *testing.T, _ string, stream []byte) {
		p, err := openai.NewResponses(openai.Options{
			BaseURL: "http://h", AuthMethod: httpapi.Bearer, APIKey: httpapitest.Secret, MaxAttempts: 1, HTTPClient: client(stream),
		})
		if err != nil {
			t.Fatal(err)
		}
		compare(t, responseMeaning(t, stream), ours(t, p))
	})
}

// responseMeaning is what the SDK makes of an answer: its last event has all of it.
func responseMeaning(t *testing.T, stream []byte) (m meaning) {
	t.Helper()
	c := gptSDK(option.WithHTTPClient(client(stream)))
	events := c.Responses.NewStreaming(t.Context(), sdk.ResponseNewParams{Model: "model"})
	defer events.Close()
	var last sdk.Response
	for events.Next() {
		if e := events.Current(); e.Type == "response.completed" || e.Type == "response.incomplete" {
			last = e.Response
		}
	}
	if events.Err() != nil || last.ID == "" {
		return meaning{Failed: true}
	}
	m.Reason = provider.FinishStop
	for _, item := range last.Output {
		switch item.Type {
		case "message":
			for _, part := range item.Content {
				m.Text += part.Text + part.Refusal
			}
		case "reasoning":
			for i, part := range item.Summary {
				if i > 0 {
					m.Thinking += "\n\n"
				}
				m.Thinking += part.Text
			}
			back, err := json.Marshal(map[string]any{
				"encrypted_content": item.EncryptedContent, "id": item.ID, "summary": jsontext.Value(item.JSON.Summary.Raw()), "type": "reasoning",
			}, json.Deterministic(true))
			if err != nil {
				t.Fatal(err)
			}
			m.Opaque = append(m.Opaque, string(back))
		case "function_call":
			m.Calls = append(m.Calls, call{item.CallID, item.Name, item.AsFunctionCall().Arguments})
			m.Reason = provider.FinishToolCalls
		}
	}
	switch last.IncompleteDetails.Reason {
	case "max_output_tokens":
		m.Reason = provider.FinishLength
	case "content_filter":
		m.Reason = provider.FinishFiltered
	}
	m.Model = string(last.Model)
	m.Usage.Input, m.Usage.Output = uint64(last.Usage.InputTokens), uint64(last.Usage.OutputTokens)
	m.Usage.CacheRead = uint64(last.Usage.InputTokensDetails.CachedTokens)
	return m
}

func TestResponsesRequests(t *testing.T) {
	each(t, "openai-responses/*.json", func(t *testing.T, _ string, body []byte) {
		var params sdk.ResponseNewParams
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
