package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// requests are the bodies that a server got. It is safe for concurrent use.
type requests struct {
	mu     sync.Mutex
	bodies []string
}

// take notes a request and counts it, from 1.
func (q *requests) take(t *testing.T, r *http.Request) int {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bodies = append(q.bodies, string(body))
	return len(q.bodies)
}

func (q *requests) all() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.bodies)
}

// ways in which a server fails a request that it may answer when asked again.
var ways = []struct {
	name string
	fail http.HandlerFunc
}{
	{"the connection breaks", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{"the answer breaks off", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{")
	}},
	{"no time", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Resource unavailable"}}`)
	}},
	{"too many requests", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"Too many requests"}}`)
	}},
}

// What reads, and what is done once for its request_id, is tried again with the
// same request_id; what else changes something is not.
func TestTriesAgainWhatIsSafe(t *testing.T) {
	ctx := t.Context()
	for _, way := range ways {
		for _, call := range []struct {
			method string
			again  bool
			do     func(*client.Client) error
		}{
			{"list_agents", true, func(c *client.Client) error { _, err := client.Do(ctx, c, "", api.ListAgents, api.None{}); return err }},
			{"send", true, func(c *client.Client) error {
				_, err := client.Do(ctx, c, "a", api.Send, api.SendParams{Content: "x"})
				return err
			}},
			{"send", true, func(c *client.Client) error {
				_, _, err := collect(c.SendStream(ctx, "a", api.SendParams{Content: "x"}))
				return err
			}},
			{"create_agent", false, func(c *client.Client) error {
				_, err := client.Do(ctx, c, "", api.CreateAgent, api.CreateAgentParams{})
				return err
			}},
			{"unheard_of", false, func(c *client.Client) error { return c.Call(ctx, client.RootPath, "unheard_of", nil, nil) }},
		} {
			t.Run(way.name+", "+call.method, func(t *testing.T) {
				var got requests
				port := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if got.take(t, r) == 1 {
						way.fail(w, r)
						return
					}
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[],"request_id":"r"}}`)
				})
				c, err := client.New(client.Options{Port: port, Key: testKey})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				err = call.do(c)
				bodies := got.all()
				if !call.again && (err == nil || len(bodies) != 1) || call.again && (err != nil || len(bodies) != 2) {
					t.Fatalf("got %v after %d requests", err, len(bodies))
				}
				if call.method != "send" {
					return
				}
				first, second := gjson.Get(bodies[0], "params.request_id").Str, gjson.Get(bodies[1], "params.request_id").Str
				if first == "" || first != second {
					t.Errorf("the same send has the request_ids %q and %q", first, second)
				}
			})
		}
	}
}

// That the server is shutting down is told at once, in its words; a stream of events
// goes on with the next server.
func TestDrainingIsToldAtOnce(t *testing.T) {
	var got requests
	port := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got.take(t, r); r.Method == http.MethodGet && len(got.all()) == 4 {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: end\ndata: {\"type\":\"end\",\"reason\":\"removed\"}\n\n")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Resource unavailable",`+
			`"data":{"type":"SERVER_DRAINING","details":"the server is shutting down: nothing was accepted","recovery_suggestions":[]}}}`)
	})
	c, err := client.New(client.Options{Port: port, Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, sent := client.Do(t.Context(), c, "a", api.Send, api.SendParams{Content: "x"})
	_, _, streamed := collect(c.SendStream(t.Context(), "a", api.SendParams{Content: "x"}))
	for _, err := range []error{sent, streamed} {
		if err == nil || !strings.HasSuffix(err.Error(), "the server is shutting down: nothing was accepted") {
			t.Errorf("got %v", err)
		}
	}
	if n := len(got.all()); n != 2 {
		t.Errorf("two sends were %d requests", n)
	}
	if err := lastOf(c.Follow(t.Context(), "a", 0, client.Filter{})); err != nil || len(got.all()) != 4 {
		t.Errorf("events: %v after %d requests", err, len(got.all()))
	}
}

// A request_id that the caller chose stays; one is added to whatever has none.
func TestRequestIDIsAdded(t *testing.T) {
	for _, test := range []struct {
		method string
		params any
		again  bool
		want   string // of request_id; * for a new one
	}{
		{"send", api.SendParams{Content: "x", RequestID: new("mine")}, true, "mine"},
		{"send", api.SendParams{Content: "x"}, true, "*"},
		{"send", map[string]any{}, true, "*"},
		{"send", nil, true, "*"},
		{"send", map[string]any{"request_id": 5}, false, "5"},
		{"run_plan", api.RunPlanParams{}, true, "*"},
		{"cancel", api.CancelParams{RequestID: "other"}, false, "other"},
		{"list_agents", nil, true, ""},
	} {
		raw, again, err := client.Encode(test.method, test.params)
		got := gjson.GetBytes(raw, "request_id").String()
		if test.want == "*" && len(got) == 36 {
			got = "*"
		}
		if err != nil || again != test.again || got != test.want || !gjson.ValidBytes(raw) {
			t.Errorf("%s %v: got %s, %v, %v", test.method, test.params, raw, again, err)
		}
	}
}

// The pauses grow, each with chance in it, the server's word is heeded, and the
// last error is told.
func TestPauses(t *testing.T) {
	again := func(ctx context.Context, repeatable bool, errs ...error) (tries int, took time.Duration, err error) {
		c, err := client.New(client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		err = client.Again(c, ctx, repeatable, func() error {
			tries++
			return errs[min(tries, len(errs))-1]
		})
		return tries, time.Since(start), err
	}
	gone := &client.ConnError{Err: io.EOF}
	limited := func(after time.Duration) error { return &client.RPCError{HTTPStatus: 429, RetryAfter: after} }
	synctest.Test(t, func(t *testing.T) {
		tries, took, err := again(t.Context(), true, gone)
		// 0.2, 0.4, 0.8, 1.6 and 3.2 s, at least half of each
		if tries != client.DefaultRetries+1 || took < 3100*time.Millisecond || took > 6200*time.Millisecond || !errors.Is(err, io.EOF) {
			t.Errorf("a server that is gone: %d tries in %v, %v", tries, took, err)
		}
		if tries, took, err = again(t.Context(), true, limited(7*time.Second), nil); tries != 2 || took != 7*time.Second || err != nil {
			t.Errorf("Retry-After: %d tries in %v, %v", tries, took, err)
		}
		if tries, took, err = again(t.Context(), true, limited(time.Hour), nil); tries != 1 || took != 0 || err == nil {
			t.Errorf("a Retry-After that is too long: %d tries in %v, %v", tries, took, err)
		}
		if tries, _, err = again(t.Context(), true, &client.RPCError{HTTPStatus: 200, Code: -32001}, nil); tries != 1 || err == nil {
			t.Errorf("an answer: %d tries, %v", tries, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		if _, took, err = again(ctx, true, gone); took != 250*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, io.EOF) {
			t.Errorf("a context that ends in a pause: %v, %v", took, err)
		}
	})
}

// start is a server with a key of its own, which it writes into home.
func start(t *testing.T, home, address string, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	key, err := auth.Create(auth.KeyPath(home, portOf(t, ln.Addr())))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: ln, Config: &http.Server{Handler: proving(key, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+key.Reveal() {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32003,"message":"Invalid API key","data":`+
				`{"type":"AUTHENTICATION_FAILED","details":"","recovery_suggestions":[]}}}`)
			return
		}
		handler(w, r)
	})}}
	server.Start()
	return server
}

// A key that was looked for is looked for again where the server has another: a
// later server on the port.
func TestKeyIsFoundAgain(t *testing.T) {
	home := t.TempDir()
	created := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agent_id":"a","url":"/agent/a"}}`)
	}
	first := start(t, home, "127.0.0.1:0", created)
	address := first.Listener.Addr().String()
	port := portOf(t, first.Listener.Addr())
	c, err := client.New(client.Options{Port: port, Lookup: &auth.Lookup{Home: home, Port: port}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create := func() error {
		_, err := client.Do(t.Context(), c, "", api.CreateAgent, api.CreateAgentParams{})
		return err
	}
	if err := create(); err != nil {
		t.Fatal(err)
	}
	first.Close()
	c.Close()
	second := start(t, home, address, created)
	defer second.Close()
	if err := create(); err != nil { // not repeatable, but nothing was asked before
		t.Errorf("with a later server: %v", err)
	}
	second.Close()
	c.Close()
	third := start(t, t.TempDir(), address, created) // its key is nowhere that we look
	defer third.Close()
	if err := create(); !errors.Is(err, client.ErrUnproved) {
		t.Errorf("a key that the server does not have: %v", err)
	}
}

// A stream of events goes on where it was: over a connection that breaks, one that
// the server ends, and a server that is not there for a moment.
func TestFollow(t *testing.T) {
	home := t.TempDir()
	var mu sync.Mutex
	var asked []string
	streams := []string{
		"id: 1\nevent: a\ndata: {}\n\nid: 2\nevent: b\ndata: {}\n\nid: 3\nevent: half\nda",
		"",
		"id: 3\nevent: c\ndata: {}\n\nevent: end\ndata: {\"type\":\"end\",\"reason\":\"draining\",\"after\":3}\n\n",
		"id: 4\nevent: d\ndata: {}\n\nevent: end\ndata: {\"type\":\"end\",\"reason\":\"removed\"}\n\n",
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if len(asked) >= len(streams) {
			t.Errorf("asked once more for %s", r.URL)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, streams[len(asked)])
		asked = append(asked, r.URL.RequestURI())
	}
	server := start(t, home, "127.0.0.1:0", handler)
	port := portOf(t, server.Listener.Addr())
	c, err := client.New(client.Options{Port: port, Lookup: &auth.Lookup{Home: home, Port: port}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []string
	for event, err := range c.Follow(t.Context(), "a", 0, client.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event.Type+strconv.FormatUint(event.Seq, 10))
		if c.Silent() {
			t.Errorf("a server that sends %s is one that does not answer", event.Type)
		}
		if event.Type == "c" { // the next server has another key
			server.CloseClientConnections()
			server.Close()
			server = start(t, home, server.Listener.Addr().String(), handler)
		}
	}
	server.Close()
	if want := []string{"a1", "b2", "c3", "d4", "end0"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	path := "/agent/a/events?after="
	if want := []string{path + "0", path + "2", path + "2", path + "3"}; !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	if !strings.Contains(fmt.Sprint(lastOf(c.Follow(t.Context(), "a", 4, client.Filter{}))), "refused") {
		t.Error("a server that does not come back is no error")
	}
	if !c.Silent() {
		t.Error("a server that is gone answers")
	}
}

// A connection that breaks before the first event goes on where it began: what happened meanwhile is not lost. Events tells nothing of that.
func TestFollowFromNow(t *testing.T) {
	var got requests
	port := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		switch n, after := got.take(t, r), r.URL.Query().Get("after"); n {
		case 1, 3:
			if after != "" {
				t.Errorf("asked for %s", r.URL)
			}
			_, _ = io.WriteString(w, ": open\nid: 7\n\n")
		default:
			if after != "7" {
				t.Errorf("asked for %s", r.URL)
			}
			_, _ = io.WriteString(w, "id: 8\nevent: turn_end\ndata: {}\n\nevent: end\ndata: {\"reason\":\"revoked\"}\n\n")
		}
	})
	c, err := client.New(client.Options{Port: port, Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var types []string
	for event, err := range c.Follow(t.Context(), "a", client.FromNow, client.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, event.Type)
	}
	if !slices.Equal(types, []string{"turn_end", "end"}) {
		t.Errorf("got %v", types)
	}
	for event, err := range c.Events(t.Context(), "a", client.FromNow, client.Filter{}) {
		if err == nil {
			t.Errorf("got %+v", event)
		}
	}
}

// The events of all agents go on from their own kind of id, and only those that
// are wanted.
func TestFollowAll(t *testing.T) {
	var got requests
	port := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if q := r.URL.Query(); q.Get("types") != "turn_end,error" || q.Get("agents") != "a,b" || r.URL.Path != "/events" {
			t.Errorf("asked for %s", r.URL)
		}
		if got.take(t, r) == 1 {
			_, _ = io.WriteString(w, "id: a:1,b:2\nevent: open\ndata: {}\n\n")
			return
		}
		if after := r.URL.Query().Get("after"); after != "a:1,b:2" {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = io.WriteString(w, "event: end\ndata: {\"reason\":\"revoked\"}\n\n")
	})
	c, err := client.New(client.Options{Port: port, Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var types []string
	for event, err := range c.FollowAll(t.Context(), "", client.Filter{Types: []string{"turn_end", "error"}, Agents: []string{"a", "b"}}) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, event.Type)
	}
	if !slices.Equal(types, []string{"open", "end"}) {
		t.Errorf("got %v", types)
	}
}

func lastOf(events func(func(client.Event, error) bool)) (last error) {
	for _, err := range events {
		last = err
	}
	return last
}

// An answer whose connection breaks is told from its start again, and one that has
// ended meanwhile all at once: the texts since the last restart are the answer.
func TestSendStreamGoesOn(t *testing.T) {
	chunk := func(text string) string {
		return "event: stream_data\ndata: {\"params\":{\"chunk\":\"" + text + "\"}}\n\n"
	}
	const result = `{"jsonrpc":"2.0","id":1,"result":{"request_id":"r","content":"one two","replayed":true}}`
	for _, test := range []struct {
		name, again, want string
	}{
		{"it still runs", chunk("one ") + chunk("two") + "event: response\ndata: " + result + "\n\n", "one|one two"},
		{"it has ended, as a stream", "event: response\ndata: " + result + "\n\n", "one|one two"},
		{"it has ended", "", "one|one two"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got requests
			port := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body := test.again
				if got.take(t, r) == 1 {
					body = chunk("one")
				} else if body == "" {
					_, _ = io.WriteString(w, result)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, body)
			})
			c, err := client.New(client.Options{Port: port, Key: testKey})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			text, answer, err := collect(c.SendStream(t.Context(), "a", api.SendParams{Content: "x"}))
			if err != nil || text != test.want || protocol.Value(answer.Content) != "one two" {
				t.Errorf("got %q, %+v, %v", text, answer, err)
			}
		})
	}
}
