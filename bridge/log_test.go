package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
)

// Nothing that a client or a model says, and no key, may reach the log.
func TestLogKeepsSecrets(t *testing.T) {
	const prompt, canary = "a-very-private-prompt", "nxk_canarycanarycanarycanarycanarycanarycanary"
	r := rigged(t, nil)
	r.create("a")
	if _, err := r.sendStream(r.ctx(), "a", api.SendParams{Content: prompt}, func(string) {}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Send(r.ctx(), "a", api.SendParams{Content: prompt, WhenBusy: new(prompt)}); err == nil {
		t.Fatal("a wrong when_busy was taken")
	}
	r.post("/rpc", list, "Authorization", "Bearer "+canary)
	r.post("/rpc?key="+canary, list, "Authorization", "Bearer "+canary)
	r.post("/nothing/"+canary, list)
	r.raw("POST /rpc\r\nAuthorization: Bearer " + canary + "\r\n\r\n")
	log := r.logs.String()
	for _, secret := range []string{prompt, canary, r.key.Reveal()} {
		if strings.Contains(log, secret) {
			t.Errorf("the log shows %q", secret)
		}
	}
	if !strings.Contains(log, "rpc request") {
		t.Error("nothing was logged")
	}
}

func TestLogLine(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	response, _ := r.post("/agent/a", `{"jsonrpc":"2.0","method":"send","params":{"content":"x"},"id":"id-7"}`)
	for line := range strings.Lines(r.logs.String()) {
		if gjson.Get(line, "data.id").Str != `"id-7"` {
			continue
		}
		got := gjson.GetMany(line, "msg", "data.method", "data.status", "agent", "incarnation", "request_id")
		want := fmt.Sprintf("[rpc request send success a 1 %s]", response.Header.Get("X-Request-Id"))
		if fmt.Sprint(got) != want || !gjson.Get(line, "data.duration_ms").Exists() {
			t.Errorf("got line %s, want %s", line, want)
		}
		return
	}
	t.Error("the request was not logged")
}

func TestNewRefuses(t *testing.T) {
	r := rigged(t, nil)
	whole := bridge.Options{
		Supervisor: r.sup, Sessions: r.sessions, Keys: r.keys, Addr: "127.0.0.1:1",
		Spec: nil,
	}
	if _, err := bridge.New(whole); err == nil {
		t.Error("New takes options without Spec")
	}
}
