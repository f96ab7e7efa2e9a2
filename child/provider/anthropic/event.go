package anthropic

import "github.com/go-json-experiment/json/jsontext"

// event is one event of an answer. Type says which of the others it has.
type event struct {
	Type         string       `json:"type"`
	Message      start        `json:"message"`       // of message_start
	Index        uint64       `json:"index"`         // of content_block_*
	ContentBlock contentBlock `json:"content_block"` // of content_block_start
	Delta        delta        `json:"delta"`         // of content_block_delta and message_delta
	Usage        usage        `json:"usage"`         // of message_delta
}

// start is what is known of an answer before it is there.
type start struct {
	Model string `json:"model"`
	Usage usage  `json:"usage"`
}

// contentBlock is a block at its beginning, which is empty as a rule.
type contentBlock struct {
	Type      blockType      `json:"type"`
	Text      jsontext.Value `json:"text"`
	Thinking  jsontext.Value `json:"thinking"`
	Signature string         `json:"signature"`
	Data      string         `json:"data"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Input     jsontext.Value `json:"input"`
}

// delta is what is added to a block, or to the message.
type delta struct {
	Type        string         `json:"type"`
	Text        jsontext.Value `json:"text"`
	Thinking    jsontext.Value `json:"thinking"`
	Signature   string         `json:"signature"`
	PartialJSON jsontext.Value `json:"partial_json"`
	StopReason  string         `json:"stop_reason"`
}

// usage is what an answer cost, in tokens. It is cumulative; what is missing is as
// it was said before.
type usage struct {
	Input         *uint64 `json:"input_tokens"`
	Output        *uint64 `json:"output_tokens"`
	CacheRead     *uint64 `json:"cache_read_input_tokens"`
	CacheCreation *uint64 `json:"cache_creation_input_tokens"`
	Created       struct {
		FiveMinutes *uint64 `json:"ephemeral_5m_input_tokens"`
		OneHour     *uint64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
}

// modelList is the answer to GET /v1/models.
type modelList struct {
	Data []struct {
		ID             string `json:"id"`
		DisplayName    string `json:"display_name"`
		MaxInputTokens uint64 `json:"max_input_tokens"`
	} `json:"data"`
}
