package claude_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// normal is JSON with its members in order.
func normal(t *testing.T, text string) string {
	t.Helper()
	value := jsontext.Value(text)
	if err := value.Canonicalize(); err != nil {
		t.Errorf("%q is no JSON: %v", text, err)
	}
	return string(value)
}
