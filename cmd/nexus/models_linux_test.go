package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
)

// countingService is a model's service of both of OpenAI's interfaces. Each answer costs 1,000
// tokens in, 400 of them from the cache, and 500 out.
type countingService struct {
	*httptest.Server

	mu   sync.Mutex // guards last
	last string     // request
}

func newCountingService(t *testing.T) *countingService {
	t.Helper()
	s := &countingService{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.last = string(body)
		s.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		if strings.HasSuffix(r.URL.Path, "/responses") {
			fmt.Fprint(w, `data: {"type":"response.output_text.delta","output_index":0,"delta":"well"}`+"\n\n"+
				`data: {"type":"response.completed","response":{"usage":{"input_tokens":1000,"output_tokens":500,"input_tokens_details":{"cached_tokens":400}}}}`+"\n\n")
			return
		}
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"well"},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":1000,"completion_tokens":500,"prompt_tokens_details":{"cached_tokens":400}}}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *countingService) asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// What models cost is known and bounded, how turns run is kept, and a service that is down gives
// way to another one: with the real programs, over both interfaces.
func TestModelsOfServices(t *testing.T) {
	t.Parallel()
	service := newCountingService(t)
	config := fmt.Sprintf(`{"providers":{
		"chat":{"type":"openai","base_url":"%[1]s/v1","auth_method":"none","models":[{"id":"m","price":{"input":1000,"output":2000,"cache_read":100}},{"id":"x"}]},
		"new":{"type":"openai-responses","base_url":"%[1]s/v1","auth_method":"none","models":[{"id":"m","price":{"input":1000,"output":2000,"cache_read":100}}]},
		"down":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none","models":[{"id":"d"}]}},
		"default_model":"chat/m","settings":{"max_output_tokens":777,"reasoning_effort":"low"}}`, service.URL)
	s := newLive(t, func(cmd *exec.Cmd) {
		for _, v := range cmd.Env {
			if home, ok := strings.CutPrefix(v, "NEXUS_HOME="); ok {
				if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(config), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	want := func(what, answer, path, want string) {
		t.Helper()
		if got := gjson.Get(answer, path).String(); got != want {
			t.Errorf("%s: %s is %q, want %q, in %s", what, path, got, want, answer)
		}
	}
	create := func(id, more string) {
		t.Helper()
		want("create "+id, s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"cwd":%q%s}`, id, s.cwd, more)), "result.agent_id", id)
	}
	for id, model := range map[string]string{"a": "chat/m", "b": "new/m"} {
		create(id, `,"model":"`+model+`","limits":{"cost_usd":1.5},"settings":{"temperature":0.5}`)
		want("a turn", s.send(id, "x"), "result.usage.cost", "1.64")
		want("what it used", s.call("/agent/"+id, "get_limits", `{}`), "result.cost_usd_used", "1.64")
		want("beyond the budget", s.send(id, "x"), "error.data.type", "BUDGET_EXCEEDED")
		want("raised", s.call("/agent/"+id, "set_limits", `{"limits":{"cost_usd":3.5}}`), "result.limits.cost_usd", "3.5")
		want("within the budget", s.send(id, "x"), "result.content", "well")
		want("the whole session", s.call("/agent/"+id, "get_context", `{}`), "result.cost", "3.28")
		want("the request", service.asked(), "temperature", "0.5")
	}
	create("unpriced", `,"model":"chat/x","limits":{"cost_usd":1}`)
	want("an unknown price", s.send("unpriced", "x"), "error.data.type", "BUDGET_EXCEEDED")
	create("f", `,"model":"down/d","settings":{"fallback_model":"chat/m","reasoning_effort":"high"}`)
	want("a fallback", s.send("f", "x"), "result.content", "well")
	want("its request", service.asked(), "reasoning_effort", "high")
	want("its request", service.asked(), "max_tokens", "777")
	want("a change", s.call("/agent/f", "set_settings", `{"settings":{"max_iterations":3}}`), "result.settings.max_iterations", "3")
	want("an unknown fallback", s.call("/", "create_agent", `{"agent_id":"g","settings":{"fallback_model":"nosuch/m"}}`), "error.data.type", "INVALID_PARAMS")
	s.end()
	s.again()
	create("f", "")
	want("what was said comes back", s.call("/agent/f", "get_settings", `{}`), "result.settings",
		`{"max_iterations":3,"max_messages":1000,"compact_at":80,"max_output_tokens":777,"reasoning_effort":"high","fallback_model":"chat/m"}`)
}
