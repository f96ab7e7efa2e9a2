package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A page is asked about, a yes for the session is one for its host alone, and an address of the
// machine is fetched from only if the owner's configuration names it.
func TestWebFetch(t *testing.T) {
	var fetched atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		_, _ = io.WriteString(w, "<html><p>a page")
	}))
	defer server.Close()
	home := t.TempDir()
	scenario := filepath.Join(home, "scenario.json")
	fetch := func(name, url string) string {
		return `{"match":"` + name + `","steps":[{"tool":{"name":"web_fetch","input":{"url":"` + url + `"}}},{"text":"done"}]}`
	}
	turns := []string{fetch("first", server.URL+"/a"), fetch("second", server.URL+"/b"), fetch("other", "http://localhost.:1/"), fetch("cloud", "http://169.254.169.254/")}
	for name, text := range map[string]string{"scenario.json": `{"turns":[` + strings.Join(turns, ",") + `]}`, "config.json": `{"tools":{"fetch_addresses":["127.0.0.1"]}}`} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--approvals", "ask", "--scenario", scenario, "--session-dir", filepath.Join(home, "sessions")}
	p := startChild(t, home, append(args, "--session", "s")...)
	answer := func(id, message, decision string) string {
		t.Helper()
		p.send(`{"type":"prompt","id":"` + id + `","message":"` + message + `"}`)
		request := p.want("type", "permission_request")
		if got := request.Get("action").String() + request.Get("decisions").String(); got != `fetch["allow_once","allow_session","deny"]` {
			t.Errorf("asked %s", request)
		}
		p.send(`{"type":"permission_response","id":"r` + id + `","request_id":"` + request.Get("request_id").String() + `","decision":"` + decision + `"}`)
		text := p.want("event.type", "toolcall_result").Get("event.result").String()
		p.want("command", "prompt")
		return text
	}
	if got := answer("1", "first", "allow_session"); !strings.HasSuffix(got, "\na page\n") {
		t.Errorf("got %q", got)
	}
	if got := p.result("2", "second"); !strings.HasSuffix(got, "\na page\n") {
		t.Errorf("the same host: %q", got)
	}
	if got := answer("3", "other", "deny"); !strings.Contains(got, "it was not allowed") {
		t.Errorf("another host: %q", got)
	}
	if got := p.result("4", "cloud"); !strings.Contains(got, "169.254.169.254 is a link-local address") {
		t.Errorf("metadata: %q", got)
	}
	p.stdin.Close()
	p.wait()

	p = startChild(t, home, append(args, "--continue", "s")...)
	if got := p.result("5", "second"); !strings.HasSuffix(got, "\na page\n") {
		t.Errorf("after a restart: %q", got)
	}
	p.send(`{"type":"get_state","id":"g"}`)
	if got, want := p.want("id", "g").Get("permissions.allowances").Raw, `[{"tool":"web_fetch","action":"fetch","hosts":["`+strings.TrimPrefix(server.URL, "http://")+`"]}]`; got != want {
		t.Errorf("allowed is %s, want %s", got, want)
	}
	p.stdin.Close()
	p.wait()

	if err := os.Remove(filepath.Join(home, "config.json")); err != nil {
		t.Fatal(err)
	}
	before := fetched.Load()
	p = startChild(t, home, "--approvals", "allow", "--scenario", scenario, "--no-session")
	if got := p.result("6", "first"); !strings.Contains(got, "is a loopback address, which is not reached") || fetched.Load() != before {
		t.Errorf("without a word of the owner: %q", got)
	}
	p.stdin.Close()
	p.wait()
}
