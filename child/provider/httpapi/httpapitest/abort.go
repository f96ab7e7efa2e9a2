package httpapitest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"

	"nexus.internal/child/provider"
)

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
