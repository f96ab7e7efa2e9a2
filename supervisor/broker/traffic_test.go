package broker_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/supervisor/broker"
)

// Each request to a service counts once, by what became of it.
func TestTraffic(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + free.Addr().String()
	free.Close()
	asked := make(chan struct{})
	h := newHouse(t, broker.Options{
		Limits: broker.Limits{Tokens: 130},
		Providers: map[string]broker.Provider{
			"dead": {BaseURL: dead, Auth: broker.None}, "keyless": {BaseURL: dead, KeyName: "K", Auth: broker.Bearer},
		},
	}, func(w http.ResponseWriter, r *http.Request) {
		switch body, _ := io.ReadAll(r.Body); string(body) {
		case "fail":
			w.WriteHeader(http.StatusTooManyRequests)
		case "break":
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "hang":
			close(asked)
			<-r.Context().Done()
		case "pause":
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
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
			if body != "pause" { // there the child has what it wants
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
	post(t.Context(), "/p/chat/completions", "{}")
	post(t.Context(), "/p/chat/completions", "{}") // the budget is spent
	if err := h.Close(); err != nil {              // which waits for all to be accounted for
		t.Fatal(err)
	}
	want := map[string]broker.Traffic{
		"p":       {Refused: 1, Answered: 1, Failed: 2, Abandoned: 2, Used: broker.Usage{Requests: 5, Input: 100, Output: 30}},
		"dead":    {Unreachable: 1, Used: broker.Usage{Requests: 1}},
		"keyless": {Refused: 1},
	}
	if diff := cmp.Diff(want, h.Stats().Providers); diff != "" {
		t.Errorf("traffic (-want +got):\n%s", diff)
	}
}
