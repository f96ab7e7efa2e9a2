package bridge_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestReady(t *testing.T) {
	var full atomic.Bool
	r := rigged(t, func(_ *rig, o *bridge.Options) {
		o.Guard = "subreaper tag"
		o.Status = figures{full: &full}
	})
	r.create("a")
	if response, body := r.do("GET", "/readyz", nil, "Authorization", "Bearer nxk_other"); response.StatusCode != http.StatusForbidden {
		t.Errorf("with another key: HTTP %d %s", response.StatusCode, body)
	}
	for _, test := range []struct {
		full   bool
		status int
		want   map[string]string // JSON by path
	}{
		{false, 200, map[string]string{
			"status": `"ready"`, "reasons": `[]`, "version": `"test"`, "protocol_version": "1", "agents": `{"ready":1}`, "turns_running": "0",
			"turns_waiting": "0", "guard": `"subreaper tag"`, "checks": `{"broker":"ok","home":"ok"}`, "warnings": `["a key is missing"]`,
		}},
		{true, 503, map[string]string{
			"status": `"unready"`, "reasons": `["home: no space left"]`, "checks": `{"broker":"ok","home":"no space left"}`,
		}},
		{false, 200, map[string]string{"status": `"ready"`}},
	} {
		full.Store(test.full)
		response, body := r.do("GET", "/readyz", nil)
		if response.StatusCode != test.status {
			t.Errorf("HTTP %d, want %d", response.StatusCode, test.status)
		}
		for path, want := range test.want {
			if got := gjson.Get(body, path).Raw; got != want {
				t.Errorf("%s is %s, want %s", path, got, want)
			}
		}
		if gjson.Get(body, "goroutines").Int() < 1 {
			t.Errorf("no goroutines: %s", body)
		}
	}
}

// The server's own probe takes nothing of what the operator's key may do, and writes
// no line; its key is good for nothing else.
func TestProbe(t *testing.T) {
	probe := auth.Generate()
	r := rigged(t, func(_ *rig, o *bridge.Options) {
		o.Probe = probe
		o.RequestsPerMinute = 1
	})
	bearer := "Bearer " + probe.Reveal()
	for range 5 {
		if response, body := r.do("GET", "/readyz", nil, "Authorization", bearer, "X-Request-Id", "of-the-probe"); response.StatusCode != http.StatusOK {
			t.Errorf("HTTP %d %s", response.StatusCode, body)
		}
	}
	for _, target := range []string{"GET /metrics", "GET /events", "GET /nowhere", "POST /rpc", "POST /agent/a"} {
		method, path, _ := strings.Cut(target, " ")
		if response, _ := r.do(method, path, nil, "Authorization", bearer); response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: HTTP %d", target, response.StatusCode)
		}
	}
	if response, _ := r.do("GET", "/readyz", nil); response.StatusCode != http.StatusOK {
		t.Errorf("the full key has used its rate: HTTP %d", response.StatusCode)
	}
	if response, _ := r.do("GET", "/readyz", nil); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the full key has no rate: HTTP %d", response.StatusCode)
	}
	if log := r.logs.String(); strings.Contains(log, "of-the-probe") || strings.Contains(log, probe.Reveal()) {
		t.Errorf("the log tells of the probe:\n%s", log)
	}
}

// A turn that nobody waits for may finish too, and the one behind it.
func TestDrainWaitsForTurns(t *testing.T) {
	began, release := make(chan struct{}, 2), make(chan struct{})
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(func(c *supervisortest.Child, p protocol.Prompt) {
			began <- struct{}{}
			select {
			case <-release:
				supervisortest.Echo(c, p)
			case <-c.Gone():
			}
		})(r, o)
		o.DrainTimeout = patience
	})
	r.create("a")
	for range 2 {
		if response, _ := r.post("/agent/a", `{"jsonrpc":"2.0","method":"send","params":{"content":"go"}}`); response.StatusCode != http.StatusNoContent {
			t.Fatalf("a notification: HTTP %d", response.StatusCode)
		}
	}
	<-began
	if _, err := client.Do(r.ctx(), r.client, "", api.ShutdownServer, api.None{}); err != nil {
		t.Fatal(err)
	}
	response, body := r.do("GET", "/readyz", nil)
	if response.StatusCode != 503 || gjson.Get(body, "status").Str != "draining" || gjson.Get(body, "turns_running").Int() != 1 || gjson.Get(body, "turns_waiting").Int() != 1 {
		t.Errorf("while draining: HTTP %d %s", response.StatusCode, body)
	}
	close(release)
	<-r.served
	if n := r.sup.Stats().Outcomes[supervisor.Completed]; n != 2 {
		t.Errorf("%d turns are completed, want 2", n)
	}
}
