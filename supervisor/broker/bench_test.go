package broker_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/broker"
)

const openaiStream = `data: {"id":"1","choices":[{"delta":{"content":"Hello"}}],"usage":null}

data: {"id":"1","choices":[{"delta":{"content":" {\"usage\":{\"prompt_tokens\":99999}}"}}]}

: OPENROUTER PROCESSING

data: {"id":"1","choices":[],"usage":{"prompt_tokens":120,"completion_tokens":7,"total_tokens":127,"prompt_tokens_details":{"cached_tokens":100}}}

data: [DONE]

`

// BenchmarkRequest is one streamed answer of 100 words from a service on
// loopback: straight, and by way of the broker. The difference is what an agent
// pays for having no key.
func BenchmarkRequest(b *testing.B) {
	answer := strings.Repeat(`data: {"id":"1","choices":[{"delta":{"content":"word "}}]}`+"\n\n", 100) + openaiStream
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for rest := answer; rest != ""; {
			var event string
			event, rest, _ = strings.Cut(rest, "\n\n")
			fmt.Fprint(w, event, "\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer upstream.Close()
	brokers, err := broker.New(broker.Options{
		Providers: map[string]broker.Provider{"p": {BaseURL: upstream.URL + "/v1", Auth: broker.Bearer, Key: canary}},
		Log:       zap.NewNop(),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer brokers.Close()
	socket := brokers.SocketPath("a")
	if _, err := brokers.Register(broker.Agent{ID: "a"}); err != nil {
		b.Fatal(err)
	}
	conn, err := brokers.Launcher(launch(func() (int, error) { return os.Getpid(), nil })).Launch(b.Context(), supervisor.Spec{ID: "a"}, false)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Stop(context.Background())
	body := `{"messages":[{"role":"user","content":"` + strings.Repeat("word ", 2000) + `"}]}`
	for _, way := range []struct {
		name, url string
		transport *http.Transport
	}{
		{"straight", upstream.URL + "/v1/chat/completions", &http.Transport{}},
		{"broker", "http://broker/p/chat/completions", &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			},
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			defer way.transport.CloseIdleConnections()
			client := &http.Client{Transport: way.transport}
			b.ReportAllocs()
			b.SetBytes(int64(len(answer)))
			for b.Loop() {
				res, err := client.Post(way.url, "application/json", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, res.Body); err != nil || n != int64(len(answer)) {
					b.Fatalf("%d bytes of %d, %v", n, len(answer), err)
				}
				res.Body.Close()
			}
		})
	}
}
