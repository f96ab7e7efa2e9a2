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
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/cmd/internal/telemetry/collectortest"
)

// A client's request id and trace go with its request: into the answer, the log, the
// audit log, and to the model's service. With a
// collector, each request, turn and model request is a span of that trace; without one,
// the trace is passed on as it came.
func TestTrace(t *testing.T) {
	t.Parallel()
	const trace, secret, prompt = "0af7651916cd43dd8448eb211c80319c", "sk-canary-of-the-service", "a-private-prompt"
	parent := "00-" + trace + "-b7ad6b7169203331-01"
	for _, exported := range []bool{false, true} {
		t.Run(fmt.Sprint("exported ", exported), func(t *testing.T) {
			collector, asked := collectortest.New(t), make(chan string, 10)
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				asked <- r.Header.Get("Traceparent") + r.Header.Get("Tracestate")
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"fine\"},\"finish_reason\":\"stop\"}]}\n\n"+
					"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":80}}}\n\ndata: [DONE]\n\n")
			}))
			defer service.Close()
			s := newLive(t, func(cmd *exec.Cmd) {
				for _, v := range cmd.Env {
					if home, ok := strings.CutPrefix(v, "NEXUS_HOME="); ok {
						text := fmt.Sprintf(`{"providers":{"p":{"type":"openai","base_url":"%s/v1","api_key_env":"P_KEY"}},"default_model":"p/m"}`, service.URL)
						if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(text), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
				cmd.Env = append(cmd.Env, "P_KEY="+secret)
				if exported {
					cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
				}
			})
			call := func(id, path, method, params string) string {
				t.Helper()
				headers := http.Header{"Authorization": {"Bearer " + s.key}, "X-Request-Id": {id}, "Traceparent": {parent}, "Tracestate": {"x=y"}}
				_, body, err := request(http.MethodPost, s.url+path, headers, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
				if err != nil || gjson.Get(body, "error").Exists() {
					t.Errorf("%s: %v %s", method, err, body)
				}
				return body
			}
			call("mine:1", "/", "create_agent", fmt.Sprintf(`{"agent_id":"a","cwd":%q}`, s.cwd))
			call("mine:2", "/agent/a", "send", `{"content":"`+prompt+`","request_id":"turn-1"}`)
			got := <-asked
			s.end()
			if audit := auditLog(t, s.home); !strings.Contains(audit, `"request_id":"mine:1"`) {
				t.Errorf("audit log: %s", audit)
			}
			line := ""
			for l := range strings.Lines(s.log.String()) {
				if gjson.Get(l, "request_id").Str == "mine:2" {
					line += l
				}
			}
			if strings.Count(line, "\n") != 1 || gjson.Get(line, "trace_id").Str != trace || gjson.Get(line, "data.method").Str != "send" {
				t.Errorf("log: %q", line)
			}
			if !exported {
				if got != parent {
					t.Errorf("the service was asked with %q", got)
				}
				return
			}
			named := map[string]collectortest.Span{}
			for _, span := range collector.Spans() {
				named[span.Name] = span
				if span.Trace != trace || span.Resource["service.name"] != "nexus" || span.Fault != "" {
					t.Errorf("span %+v", span)
				}
			}
			send, turn, model := named["send"], named["turn"], named["model request"]
			if send.Parent != "b7ad6b7169203331" || turn.Parent != send.ID || model.Parent != turn.ID || got != "00-"+trace+"-"+model.ID+"-01" {
				t.Errorf("spans %+v, and the service was asked with %q", collector.Spans(), got)
			}
			if send.Attributes["nexus.agent.id"] != "a" || send.Attributes["nexus.request.id"] != "mine:2" || turn.Attributes["nexus.turn.id"] != "turn-1" ||
				model.Attributes["gen_ai.provider.name"] != "p" || model.Attributes["http.response.status_code"] != int64(200) {
				t.Errorf("attributes of %+v", collector.Spans())
			}
			for _, span := range []collectortest.Span{turn, model} { // the whole input, as the agent's usage has it
				if span.Attributes["gen_ai.usage.input_tokens"] != int64(100) || span.Attributes["gen_ai.usage.output_tokens"] != int64(3) {
					t.Errorf("tokens of %+v", span)
				}
			}
			for _, private := range []string{prompt, secret, s.key, "fine", service.URL} {
				if strings.Contains(collector.Text(), private) {
					t.Errorf("the collector was told %q", private)
				}
			}
		})
	}
}
