// Package httpapitest stands in for a model's service in the tests of providers: a
// loopback server that gives one prepared answer after another and keeps what it
// was asked.
//
//	s := httpapitest.Serve(t, httpapitest.Status(429, "{}", "Retry-After", "0"), httpapitest.Stream(recorded))
//	p, err := openai.New(openai.Options{BaseURL: s.URL + "/v1", AuthMethod: httpapi.Bearer, APIKey: httpapitest.Secret})
//	deltas, err := httpapitest.Collect(ctx, p, request)
//	request, body := s.Request(1)
//
// A Service is safe for concurrent use; the test's clean-up closes it and waits
// for its goroutines. It fails the test when it is asked more often than it has
// answers. It is for tests alone. See SPEC.md §4.3.
package httpapitest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/provider"
)

// Secret is the key of the tests. No error may hold it.
const Secret = "sk-proj-5ecret5ecret5ecret"

// Service is a loopback server.
type Service struct {
	*httptest.Server
	mu       sync.Mutex // guards what follows
	requests []*http.Request
	bodies   [][]byte
}

// Serve starts a server that gives the answers in their order.
func Serve(t testing.TB, answers ...http.HandlerFunc) *Service {
	t.Helper()
	s := &Service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read request: %v", err)
		}
		s.mu.Lock()
		n := len(s.requests)
		s.requests = append(s.requests, r)
		s.bodies = append(s.bodies, body)
		s.mu.Unlock()
		if n >= len(answers) {
			t.Errorf("request %d was not expected", n+1)
			w.WriteHeader(http.StatusTeapot) // which nobody asks again
			return
		}
		answers[n](w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// Asked is how many requests there were.
func (s *Service) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// Request is one of those that were made, from 0, and its body.
func (s *Service) Request(n int) (*http.Request, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[n], s.bodies[n]
}

// Stream answers with pieces of an event stream, each sent on its own.
func Stream(pieces ...[]byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, piece := range pieces {
			_, _ = w.Write(piece)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// ByteByByte splits a stream at every byte.
func ByteByByte(whole []byte) [][]byte {
	pieces := make([][]byte, len(whole))
	for i := range whole {
		pieces[i] = whole[i : i+1]
	}
	return pieces
}

// Stalled answers with pieces of an event stream and then says no more until
// the client has gone.
func Stalled(pieces ...[]byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		Stream(pieces...)(w, r)
		<-r.Context().Done()
	}
}

// Status answers with a status, a JSON body and headers, which are names and
// values in turn.
func Status(code int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// Canned is a transport that answers every request with a stream, without a
// network.
type Canned []byte

// RoundTrip gives the answer.
func (c Canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(bytes.NewReader(c)),
	}, nil
}

// Collect reads an answer to its end.
func Collect(ctx context.Context, p provider.Provider, r provider.Request) (deltas []provider.Delta, err error) {
	for delta, err := range p.Stream(ctx, r) {
		if err != nil {
			return deltas, err
		}
		deltas = append(deltas, delta)
	}
	return deltas, nil
}

// Pretty is a body in a form that a person can compare.
func Pretty(t testing.TB, body []byte) []byte {
	t.Helper()
	value := jsontext.Value(body)
	if err := value.Canonicalize(); err != nil {
		t.Fatalf("the body is not JSON: %v", err)
	}
	if err := value.Indent(jsontext.WithIndent("  ")); err != nil {
		t.Fatalf("indent the body: %v", err)
	}
	return append(value, '\n')
}

// Abort fails unless an abort of the request ends a silent service, a stalled stream
// and a wait between two tries. whole is a stream of the service's that says ", Alice";
// busy is its status when it is asked too much; open makes the provider of a service.
func Abort(t *testing.T, whole []byte, busy int, open func(t *testing.T, s *Service) provider.Provider, request provider.Request) {
	half := bytes.Index(whole, []byte("Alice"))
	half += bytes.Index(whole[half:], []byte("\n\n")) + 2
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		after  func(provider.Delta) bool // abort once this was seen; nil: once the request is there
	}{
		{"silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil},
		{"stalled", Stalled(whole[:half]), func(d provider.Delta) bool { return d == provider.Text{Text: ", Alice"} }},
		{"waiting", Status(busy, "{}", "Retry-After", "60"), func(d provider.Delta) bool {
			_, ok := d.(provider.Retry)
			return ok
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, abort := context.WithCancel(t.Context())
			defer abort()
			s := Serve(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.after == nil {
					abort()
				}
				tt.answer(w, r)
			})
			var last error
			for delta, err := range open(t, s).Stream(ctx, request) {
				last = err
				if err == nil && tt.after != nil && tt.after(delta) {
					abort()
				}
			}
			if !errors.Is(last, context.Canceled) {
				t.Errorf("ended with %v, want context.Canceled", last)
			}
		})
	}
}
