package playedmodel_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"nexus.internal/cmd/internal/playedmodel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dialects are requests as programs send them, with a prompt and a tool for commands.
var dialects = map[string]struct{ path, body string }{
	"openai chat": {"/v1/chat/completions", `{"stream":%t,"messages":[{"role":"user","content":%q}],
		"tools":[{"type":"function","function":{"name":"bash","parameters":{"properties":{"command":{"type":"string"},"why":{"type":"string"}},"required":["command","why"]}}}]}`},
	"openai responses": {"/v1/responses", `{"stream":%t,"input":[{"role":"user","content":%q}],
		"tools":[{"type":"web_search"},{"type":"function","name":"shell","parameters":{"properties":{"command":{"type":"array"}},"required":["command"]}}]}`},
	"anthropic": {"/v1/messages", `{"stream":%t,"messages":[{"role":"user","content":%q}],
		"tools":[{"name":"Bash","input_schema":{"properties":{"command":{"type":"string"}},"required":["command"]}}]}`},
	"gemini": {"/v1beta/models/m:streamGenerateContent", `{"x":%t,"contents":[{"role":"user","parts":[{"text":%q}]}],
		"tools":[{"functionDeclarations":[{"name":"run_shell_command","parametersJsonSchema":{"properties":{"command":{"type":"string"}},"required":["command"]}}]}]}`},
}

func ask(t *testing.T, m *playedmodel.Player, path, body string) string {
	t.Helper()
	response, err := http.Post(m.URL()+path, "application/json", strings.NewReader(body)) //nolint:noctx // it is answered at once
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v: %s", response.StatusCode, err, text)
	}
	return string(text)
}

// In each dialect the model recalls a word, and calls the tool for commands once.
func TestDialects(t *testing.T) {
	m, err := playedmodel.New()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for name, dialect := range dialects {
		for _, streamed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streamed %t", name, streamed), func(t *testing.T) {
				said := func(prompt string) string {
					return ask(t, m, dialect.path, fmt.Sprintf(dialect.body, streamed, prompt))
				}
				if got := said(playedmodel.WordMark + "apple " + playedmodel.Short); !strings.Contains(got, "Understood.") || strings.Contains(got, playedmodel.Made) {
					t.Errorf("a short answer: %s", got)
				}
				if got := said(playedmodel.WordMark + "apple " + playedmodel.Recall); !strings.Contains(got, `"apple"`) {
					t.Errorf("a word: %s", got)
				}
				if got := said(playedmodel.Run); !strings.Contains(got, playedmodel.Made) {
					t.Errorf("no call: %s", got)
				}
				// As a history has it: the call, then its result.
				if got := said(playedmodel.Run + " " + playedmodel.Command + " done " + playedmodel.Run); strings.Contains(got, playedmodel.Made) {
					t.Errorf("a second call: %s", got)
				}
			})
		}
		if got := m.Asked(); got == "" {
			t.Errorf("%s is not counted", name)
		}
	}
}
