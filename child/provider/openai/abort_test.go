package openai_test

import (
	"bytes"
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
	httpapitest.Abort(t, recorded(t, "text.sse"), 429, func(t *testing.T, s *httpapitest.Service) provider.Provider { return acme(t, s, nil) }, hello)
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
