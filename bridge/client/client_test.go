package client_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testKey is the key of the servers and of the clients.
var testKey = auth.Generate()

// proving answers challenges as a server that has the key does, and all else with
// handler.
func proving(key auth.Key, handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		nonce := r.URL.Query().Get("challenge")
		if nonce == "" {
			handler(w, r)
			return
		}
		address := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
		_, _ = io.WriteString(w, `{"status":"ok","service":"nexus","version":"7","proof":"`+key.Prove(nonce, address)+`"}`)
	}
}

// serve answers every request with handler, and challenges with the key, and
// returns the port.
func serve(t *testing.T, handler http.HandlerFunc) int {
	t.Helper()
	server := httptest.NewServer(proving(testKey, handler))
	t.Cleanup(server.Close)
	return portOf(t, server.Listener.Addr())
}

func portOf(t *testing.T, addr net.Addr) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr.String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func dial(t *testing.T, port int) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Port: port, Key: testKey, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNewRefusesOtherMachines(t *testing.T) {
	for _, url := range []string{
		"http://example.com", "ftp://127.0.0.1:1", "https://", "https://example.com/x", "https://example.com?x", "https://a.example,http://b.example", "https://a.example,", "http://10.0.0.1:8765", "http://user@127.0.0.1", "http://127.0.0.1/x", "127.0.0.1:1",
	} {
		if _, err := client.New(client.Options{URL: url}); err == nil {
			t.Errorf("%s is accepted", url)
		}
	}
	for _, url := range []string{"http://127.0.0.1:8765", "http://localhost:1/", "http://[::1]:1"} {
		if _, err := client.New(client.Options{URL: url}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestDetect(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := portOf(t, ln.Addr())
	ln.Close()

	keySent := false
	nexus := serve(t, func(w http.ResponseWriter, r *http.Request) {
		keySent = keySent || r.Header.Get("Authorization") != ""
		_, _ = io.WriteString(w, `{"status":"ok","service":"nexus","version":"7"}`)
	})
	other := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "hello", http.StatusNotFound) })
	noHTTP := greet(t)

	for _, test := range []struct {
		name string
		port int
		want client.Detection
	}{
		{"nobody", closed, client.NoServer},
		{"ours", nexus, client.NexusServer},
		{"another web server", other, client.OtherService},
		{"no web server", noHTTP, client.OtherService},
		{"one that dies", dying(t), client.NoServer},
	} {
		t.Run(test.name, func(t *testing.T) {
			found, err := client.Detect(context.Background(), test.port)
			if err != nil || found.Detection != test.want {
				t.Errorf("got %v, %v, want %v", found, err, test.want)
			}
			want := client.Finding{Detection: test.want}
			if test.want == client.NexusServer {
				want.URL = "http://127.0.0.1:" + strconv.Itoa(test.port)
				want.Health = api.Health{Status: "ok", Service: "nexus", Version: "7"}
			}
			if found != want {
				t.Errorf("got %+v, want %+v", found, want)
			}
		})
	}
	if keySent {
		t.Error("Detect sent a key")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := client.Detect(ctx, nexus); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// A server that listens on [::1] alone is found, also where 127.0.0.1 has
// something else on that port.
func TestDetectOnTheOtherAddress(t *testing.T) {
	handler := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"ok","service":"nexus","version":"7"}`)
	}
	port := strconv.Itoa(greet(t))
	ln, err := net.Listen("tcp", "[::1]:"+port)
	if err != nil {
		t.Logf("no IPv6 here, or somebody has the port: %v", err)
		return
	}
	server := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(handler)}}
	server.Start()
	t.Cleanup(server.Close)
	found, err := client.Detect(t.Context(), portOf(t, ln.Addr()))
	if err != nil || found.Detection != client.NexusServer || found.URL != "http://[::1]:"+port {
		t.Errorf("got %+v, %v, want the server on [::1]", found, err)
	}
}

// dying listens like a server that is killed as it is asked: connections are reset, then nobody
// listens.
func dying(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer ln.Close()
		for range 2 {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return portOf(t, ln.Addr())
}

// greet listens like a server that speaks first, and not HTTP.
func greet(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "220 mail.example ready\r\n")
			conn.Close()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return portOf(t, ln.Addr())
}

func TestCallErrors(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		body   string
		check  func(error) bool
	}{
		{"not JSON", 502, "<html>", func(err error) bool { return errors.Is(err, client.ErrNotNexus) }},
		{"another result type", 200, `{"jsonrpc":"2.0","id":1,"result":[]}`, func(err error) bool {
			return err != nil && strings.Contains(err.Error(), "decode the result")
		}},
		{"the server's", 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Agent not found: a",` +
			`"data":{"type":"AGENT_NOT_FOUND","details":"none is saved","recovery_suggestions":["s"]}}}`, func(err error) bool {
			e, ok := errors.AsType[*client.RPCError](err)
			return ok && e.Code == -32602 && e.HTTPStatus == 404 && e.Data.Type == "AGENT_NOT_FOUND" &&
				e.Error() == "Agent not found: a: none is saved"
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			if _, err := client.Do(context.Background(), c, "", api.ListAgents, api.None{}); !test.check(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A redirect must not carry the key elsewhere.
func TestRedirectIsNotFollowed(t *testing.T) {
	followed := false
	c := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			followed = true
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	if _, err := client.Do(context.Background(), c, "", api.ListAgents, api.None{}); !errors.Is(err, client.ErrNotNexus) || followed {
		t.Errorf("got %v, followed %v", err, followed)
	}
}

func TestEvents(t *testing.T) {
	const big = 1 << 20
	c := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/agent/a/events?after=4" {
			t.Errorf("asked for %s", r.URL.RequestURI())
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": open\n\nid: 5\nevent: ready\ndata: {\"type\":\"ready\"}\n\n: heartbeat\n\n"+
			"id:6\r\nevent:x\r\ndata:"+strings.Repeat("x", big)+"\r\n\r\n"+
			"id: 7\nevent: half\ndata: {}")
	}))
	var got []client.Event
	var last error
	for event, err := range c.Events(context.Background(), "a", 4, client.Filter{}) {
		if last = err; err == nil {
			got = append(got, event)
		}
	}
	if len(got) != 2 || got[0].Seq != 5 || got[0].Type != "ready" || string(got[0].Data) != `{"type":"ready"}` ||
		got[1].Seq != 6 || got[1].Type != "x" || len(got[1].Data) != big {
		t.Errorf("got %d events: %.100v", len(got), got)
	}
	if !errors.Is(last, io.ErrUnexpectedEOF) {
		t.Errorf("a stream that breaks off ends with %v", last)
	}
}

// collect reads a streamed answer. Each restart is written as |.
func collect(parts iter.Seq2[client.Part, error]) (text string, result api.SendResult, err error) {
	for part, failed := range parts {
		if failed != nil {
			err = failed
		}
		switch part := part.(type) {
		case client.Restart:
			text += "|"
		case client.Result:
			result = api.SendResult(part)
		case client.Text:
			text += string(part)
		}
	}
	return text, result, err
}

func TestSendStreamThatBreaksOff(t *testing.T) {
	c := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: stream_data\ndata: {\"params\":{\"chunk\":\"a\\n\"}}\n\n")
	}))
	text, _, err := collect(c.SendStream(context.Background(), "a", api.SendParams{}))
	if !errors.Is(err, io.ErrUnexpectedEOF) || text != "a\n" {
		t.Errorf("got %q, %v, want what came and an error", text, err)
	}
}

// An answer of 8 MiB, each byte of which takes six in JSON, comes through both
// ways; a longer line than that is refused.
func TestLongestAnswer(t *testing.T) {
	const size = 8 << 20
	want := strings.Repeat("\x01", size)
	answer := `{"jsonrpc":"2.0","id":1,"result":{"request_id":"r","content":"` + strings.Repeat(`\u0001`, size) + `"}}`
	c := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			w.Header().Set("Content-Type", "text/event-stream")
			answer := "event: response\ndata: " + answer + "\n\n"
			_, _ = io.WriteString(w, answer)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	text, streamed, err := collect(c.SendStream(t.Context(), "a", api.SendParams{}))
	if err != nil || protocol.Value(streamed.Content) != want || text != want {
		t.Errorf("streamed: %d bytes, a result of %d, %v", len(text), len(protocol.Value(streamed.Content)), err)
	}
	whole, err := client.Do(t.Context(), c, "a", api.Send, api.SendParams{})
	if err != nil || protocol.Value(whole.Content) != want {
		t.Errorf("whole: %d bytes, %v", len(protocol.Value(whole.Content)), err)
	}
	endless := io.MultiReader(strings.NewReader("data: "), endlessly{})
	for _, err := range client.ReadEvents(endless) {
		if err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("an endless line: %v", err)
		}
	}
}

// endlessly reads as the letter x, without an end.
type endlessly struct{}

func (endlessly) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestCallEndsWithItsContext(t *testing.T) {
	release := make(chan struct{})
	c := dial(t, serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer close(release)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := client.Do(ctx, c, "", api.ListAgents, api.None{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// FuzzEvents: whatever a server sends, reading ends, with an error, and no
// event is longer than what was sent.
func FuzzEvents(f *testing.F) {
	f.Add("id: 1\nevent: a\ndata: {}\n\n")
	f.Add(": x\r\n\r\ndata\ndata:\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		ended := false
		for event, err := range client.ReadEvents(strings.NewReader(text)) {
			if ended {
				t.Fatal("an event after the end")
			}
			ended = err != nil
			if len(event.Data) > len(text) || strings.ContainsAny(event.Type, "\n") {
				t.Errorf("event %+v out of %q", event, text)
			}
		}
		if !ended {
			t.Error("reading ended without an error")
		}
	})
}

// The helpers of an agent's model ask its own path for what they are named
// after, and read the answer.
func TestModelHelpers(t *testing.T) {
	var asked []string
	c := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked = append(asked, r.URL.Path+" "+string(body))
		if strings.Contains(string(body), "set_model") {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"updated":true,"model":"two"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"model":"one","provider":"p","reasoning":true}}`)
	}))
	got, err := client.Do(t.Context(), c, "a", api.GetModel, api.None{})
	if err != nil || got.Model != "one" || got.Provider != "p" || !got.Reasoning {
		t.Errorf("get_model: got %+v, %v", got, err)
	}
	set, err := client.Do(t.Context(), c, "a", api.SetModel, api.SetModelParams{Model: "two"})
	if err != nil || !set.Updated || set.Model != "two" {
		t.Errorf("set_model: got %+v, %v", set, err)
	}
	for i, want := range []string{`"method":"get_model"`, `"params":{"model":"two"}`} {
		if !strings.HasPrefix(asked[i], "/agent/a ") || !strings.Contains(asked[i], want) {
			t.Errorf("asked %s, want %s at /agent/a", asked[i], want)
		}
	}
}
