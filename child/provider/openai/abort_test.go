package openai_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/httpapi/httpapitest"
	"nexus.internal/child/provider/openai"
)

// An abort ends a silent service, a stalled stream and a wait between two tries.
func TestAbort(t *testing.T) {
	whole := recorded(t, "text.sse")
	half := bytes.Index(whole, []byte("Alice"))
	half += bytes.Index(whole[half:], []byte("\n\n")) + 2
	stall := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		after  func(provider.Delta) bool // abort once this was seen; nil: once the request is there
	}{
		{"silent", stall, nil},
		{"stalled", func(w http.ResponseWriter, r *http.Request) {
			httpapitest.Stream(whole[:half])(w, r)
			stall(w, r)
		}, func(d provider.Delta) bool { return d == provider.Text{Text: ", Alice"} }},
		{"waiting", httpapitest.Status(429, "{}", "Retry-After", "60"), func(d provider.Delta) bool {
			_, ok := d.(provider.Retry)
			return ok
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, abort := context.WithCancel(t.Context())
			defer abort()
			s := httpapitest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				if tt.after == nil {
					abort()
				}
				tt.answer(w, r)
			})
			var last error
			for delta, err := range acme(t, s, nil).Stream(ctx, hello) {
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

// A service that says nothing for the idle time is given up; a comment that
// keeps the connection alive counts as something said.
func TestIdle(t *testing.T) {
	s := httpapitest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		httpapitest.Stream([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"))(w, r)
		<-r.Context().Done()
	})
	got, err := httpapitest.Collect(t.Context(), acme(t, s, func(o *openai.Options) { o.IdleTimeout = 20 * time.Millisecond }), hello)
	if err == nil || !strings.Contains(err.Error(), "fell silent") || len(got) != 1 {
		t.Errorf("deltas %v, error %v", got, err)
	}
}

// A connection that is refused is tried again, and the last error says so.
func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	p, err := openai.New(openai.Options{BaseURL: "http://" + address, AuthMethod: httpapi.Bearer, APIKey: secret, RetryBackoff: 1})
	if err != nil {
		t.Fatal(err)
	}
	got, err := httpapitest.Collect(t.Context(), p, hello)
	if err == nil || !strings.Contains(err.Error(), "connection refused") || len(got) != 3 {
		t.Errorf("%d retries, error %v", len(got), err)
	}
}

// Ending the iteration releases the request: the service sees it end.
func TestLeave(t *testing.T) {
	released := make(chan struct{})
	whole := recorded(t, "text.sse")
	s := httpapitest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		httpapitest.Stream(whole[:bytes.Index(whole, []byte("Alice"))])(w, r)
		<-r.Context().Done()
		close(released)
	})
	for delta := range acme(t, s, nil).Stream(t.Context(), hello) {
		if delta == (provider.Text{Text: "Grüße"}) {
			break
		}
	}
	<-released
}
