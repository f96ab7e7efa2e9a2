package openai

import (
	sdk "github.com/openai/openai-go/v3"

	"nexus.internal/protocol"
)

// GivesBack reports whether the reasoning of a message goes back to the model,
// in JSON.
func GivesBack(model string, m protocol.Message) bool {
	var said sdk.ChatCompletionAssistantMessageParam
	if !giveBack(&said, m, model) {
		return false
	}
	_, err := said.MarshalJSON()
	return err == nil
}
