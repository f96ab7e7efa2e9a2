package broker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
	"nexus.internal/supervisor/broker"
)

// Each request to a service counts once, by what became of it.
func TestTraffic(t *testing.T) {
	const dead = "http://127.0.0.1:1" // nobody listens there
	asked := make(chan struct{})
	h := newHouse(t, broker.Options{
		Limits: broker.Limits{Limits: protocol.Limits{Tokens: 130}},
		Providers: map[string]broker.Provider{
			"dead": {BaseURL: dead, Auth: broker.None}, "keyless": {BaseURL: dead, KeyName: "K", Auth: broker.Bearer},
		},
	}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch what := strings.Trim(string(body), `{"}: `); what {
		case "fail":
			w.WriteHeader(http.StatusTooManyRequests)
		case "break":
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "hang":
			close(asked)
			<-r.Context().Done()
		case "done", "cut": // and the stream goes on, as far as anybody can tell
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"\"}]}\n\n")
			if what == "done" {
				fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
					"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n")
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case "short": // it ends before the model has
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n")
		case "pause":
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"usage":{"prompt_tokens":100,"completion_tokens":30}}`)
		}
	})
	socket, _ := h.start(broker.Agent{ID: "a"})
	const uncharged = "/p/messages/count_tokens" // it costs no tokens
	post := func(ctx context.Context, path, body string) {
		req, err := http.NewRequestWithContext(ctx, "POST", "http://broker"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if res, err := client(socket).Do(req); err == nil {
			switch what := strings.Trim(body, `{"}: `); what {
			case "pause": // the child has what it wants
			case "done", "cut":
				for lines := bufio.NewScanner(res.Body); lines.Scan() && !strings.Contains(lines.Text(), map[string]string{"done": "[DONE]", "cut": "hi"}[what]); {
				}
			default:
				_, _ = io.Copy(io.Discard, res.Body) // it may break off
			}
			res.Body.Close()
		}
	}
	leaving, leave := context.WithCancel(t.Context())
	go func() {
		<-asked
		leave()
	}()
	post(leaving, uncharged, "hang")
	post(t.Context(), uncharged, "pause")
	post(t.Context(), uncharged, "fail")
	post(t.Context(), uncharged, "break")
	post(t.Context(), "/dead/messages/count_tokens", "{}")
	post(t.Context(), "/keyless/chat/completions", "{}")
	post(t.Context(), "/nobody/chat/completions", "{}")
	post(t.Context(), "/p/chat/completions", `{"done":""}`)
	post(t.Context(), "/p/chat/completions", `{"cut":""}`)
	post(t.Context(), "/p/chat/completions", `{"short":""}`)
	post(t.Context(), "/p/chat/completions", "{}")
	post(t.Context(), "/p/chat/completions", "{}") // the budget is spent
	if err := h.Close(); err != nil {              // which waits for all to be accounted for
		t.Fatal(err)
	}
	want := map[string]broker.Traffic{
		"p":       {Refused: 1, Answered: 2, Failed: 3, Abandoned: 3, Used: broker.Usage{Requests: 8, Estimated: 1, Input: 105, Output: 35}},
		"dead":    {Unreachable: 1, Used: broker.Usage{Requests: 1}},
		"keyless": {Refused: 1},
	}
	if diff := cmp.Diff(want, h.Stats().Providers); diff != "" {
		t.Errorf("traffic (-want +got):\n%s", diff)
	}
}
