package cli_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
)

// planFile is a file with a plan of one task.
func planFile(t *testing.T) string {
	t.Helper()
	plan := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(plan, []byte(`{"tasks":[{"id":"a","type":"testing","description":"x"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return plan
}

// An error about a parameter names the flags by which it was given; what somebody gave stays as it is.
func TestErrorsNameFlags(t *testing.T) {
	plan := planFile(t)
	for _, test := range []struct {
		said string
		args []string
		want string
	}{
		{"place: the server is none of a cluster", []string{"create", "a", "--node", "b", "--label", "c=d"}, "--label, --node: the server is none of a cluster"},
		{"place.near: no agent of that name is known", []string{"create", "--node", "b", "--near", "c"}, "--near: no agent of that name is known"},
		{"place.labels[x]: y", []string{"create", "--label", "c=d"}, "--label: y"},
		{"preset: want one of a, b", []string{"create", "--trusted"}, "--trusted: want one of a, b"},
		{"home: want own or user", []string{"create", "--kind", "k", "--program-home", "x", "--home", t.TempDir()}, "--program-home: want own or user"},
		{"home: want own or user", []string{"create", "--home", t.TempDir()}, "home: want own or user"},
		{"cwd_lost: want wait or fresh", []string{"create", "--cwd-lost", "x"}, "--cwd-lost: want wait or fresh"},
		{"pool.preset: yolo cannot be granted", []string{"plan", plan, "--preset", "yolo"}, "--preset: yolo cannot be granted"},
		{"request_id: was used with another on_failure", []string{"plan", plan, "--run", "r"}, "--run: was used with another --continue"},
		{"cwd: /on_failure/if_exists is not a directory", []string{"create"}, "cwd: /on_failure/if_exists is not a directory"},
		{"preset: load it without, and set_permissions widens it", []string{"load", "a", "--preset", "p"}, "--preset: load it without, and SELF permissions AGENT PRESET widens it"},
		{"timeout_s: too long", []string{"send", "a", "x", "--timeout", "9h"}, "--timeout: too long"},
		{"model: x", []string{"model", "a", "m"}, "model: x"},
		{"preset: x", []string{"call", "create_agent", `{"preset":"x"}`}, "preset: x"},
	} {
		var host atomic.Pointer[string] // requests on several connections may come
		got := run(t, func(w http.ResponseWriter, r *http.Request) {
			host.Store(&r.Host)
			said, _ := json.Marshal("Invalid parameter " + test.said)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":%s,"data":{"type":"INVALID_PARAMS"}}}`, said)
		}, nil, test.args...)
		port := ""
		if at := host.Load(); at != nil { // else it was seen before a request
			_, port, _ = net.SplitHostPort(*at)
		}
		want := "nexus-rpc: Invalid parameter " + strings.ReplaceAll(test.want, "SELF", "nexus-rpc --port "+port) + "\n"
		if got.status != 1 || got.stderr != want {
			t.Errorf("%q: got %d, %q, want %q", test.args, got.status, got.stderr, want)
		}
	}
}
