package openai

import (
	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
)

// GivesBack reports whether the reasoning of a message goes back to the model,
// in JSON.
func GivesBack(model string, m protocol.Message) bool {
	var said message
	if !restoreReasoning(&said, m, model) {
		return false
	}
	_, err := json.Marshal(said)
	return err == nil
}
