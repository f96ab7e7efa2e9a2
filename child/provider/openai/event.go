package openai

import (
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/provider/httpapi"
)

// chunk is one event of an answer.
type chunk struct {
	Object  string         `json:"object"`
	Model   string         `json:"model"`
	Choices []choice       `json:"choices"`
	Usage   *usage         `json:"usage"`
	Error   jsontext.Value `json:"error"`
}

// choice is one of several answers. One is asked for.
type choice struct {
	Index        uint64 `json:"index"`
	Delta        delta  `json:"delta"`
	FinishReason string `json:"finish_reason"`
}

// delta is what is added to an answer. Texts are as they came, for httpapi.Text.
type delta struct {
	Content          jsontext.Value `json:"content"`
	Refusal          jsontext.Value `json:"refusal"`
	ReasoningContent jsontext.Value `json:"reasoning_content"` // DeepSeek, vLLM, llama.cpp
	Reasoning        jsontext.Value `json:"reasoning"`         // OpenRouter, Ollama
	ReasoningDetails jsontext.Value `json:"reasoning_details"` // OpenRouter
	ToolCalls        []callPiece    `json:"tool_calls"`
}

// callPiece is a piece of a call.
type callPiece struct {
	Index    uint64 `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string         `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	} `json:"function"`
}

// usage is what an answer cost, in tokens.
type usage struct {
	Prompt     uint64 `json:"prompt_tokens"`
	Completion uint64 `json:"completion_tokens"`
	Details    struct {
		Cached  uint64 `json:"cached_tokens"`
		Written uint64 `json:"cache_write_tokens"` // OpenRouter
	} `json:"prompt_tokens_details"`
	CacheHit uint64 `json:"prompt_cache_hit_tokens"` // DeepSeek
}

// modelList is the answer to GET /models.
type modelList struct {
	Data []model `json:"data"`
}

// model is what services say of a model: OpenAI its id alone, OpenRouter a name
// and context_length, vLLM max_model_len, llama.cpp what it was trained with.
type model struct {
	ID            string         `json:"id"`
	Name          string         `json:"name"`
	ContextLength uint64         `json:"context_length"`
	MaxModelLen   uint64         `json:"max_model_len"`
	ContextWindow uint64         `json:"context_window"`
	MaxLength     uint64         `json:"max_context_length"`
	Meta          jsontext.Value `json:"meta"` // llama.cpp's; another service may have anything there
}

// trained is how many tokens llama.cpp's model was trained with; 0 if it does not
// say.
func (m model) trained() uint64 {
	var meta struct {
		Context uint64 `json:"n_ctx_train"`
	}
	if m.Meta.Kind() != '{' || httpapi.Decode(m.Meta, &meta) != nil {
		return 0
	}
	return meta.Context
}
