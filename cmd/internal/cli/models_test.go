package cli_test

import (
	"net/http"
	"strings"
	"testing"
)

// What a list of models lacks is said on stderr, beside the list: a list that was cut looked whole.
func TestModelsNotes(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{"models":[{"provider":"many","model_id":"m","model_name":"m","context_window":9}],` +
		`"notes":["many: it has 9 models, the first 1 are listed\u001b[2J"]}}`
	got := run(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}, nil, "models", "a")
	if got.status != 0 || !strings.Contains(got.stdout, "many/m") || !strings.HasPrefix(got.stderr, "nexus-rpc: many: it has 9 models, the first 1 are listed") || strings.Contains(got.stderr, "\x1b") {
		t.Errorf("%+v", got)
	}
}
