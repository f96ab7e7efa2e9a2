package client_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"nexus.internal/bridge/client"
)

// A server that is not ready is no error; one that refuses the key, or is not
// ours, is.
func TestReady(t *testing.T) {
	for _, test := range []struct {
		name, body, want string
		status           int
		check            func(error) bool
	}{
		{"ready", `{"status":"ready","reasons":[],"goroutines":7}`, "ready", 200, func(err error) bool { return err == nil }},
		{"draining", `{"status":"draining","reasons":["the server is going down"],"goroutines":7}`, "draining", 503, func(err error) bool { return err == nil }},
		{"another key", `{"jsonrpc":"2.0","id":null,"error":{"code":-32003,"message":"Invalid API key"}}`, "", 403, func(err error) bool {
			e, ok := errors.AsType[*client.RPCError](err)
			return ok && e.HTTPStatus == 403
		}},
		{"not ours", `<html>`, "", 200, func(err error) bool { return errors.Is(err, client.ErrNotNexus) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" || r.Header.Get("Authorization") == "" {
					t.Errorf("asked %s with key %q", r.URL.Path, r.Header.Get("Authorization"))
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			ready, err := c.Ready(t.Context())
			if !test.check(err) || ready.Status != test.want {
				t.Errorf("got %+v, %v", ready, err)
			}
			if err == nil && ready.Goroutines != 7 {
				t.Errorf("got %d goroutines", ready.Goroutines)
			}
		})
	}
}
