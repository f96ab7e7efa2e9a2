package main_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/supervisor/cluster/clustertest"
)

// A server meets what later programs keep: it says so where operators look, and leaves the agent to others with the reason.
func TestClusterLaterFormat(t *testing.T) {
	t.Parallel()
	nats := clustertest.Start(t, 3)[0]
	url := strings.Replace(nats.NATS().ConnectedUrl(), "nats://", "nats://"+nats.NATS().Opts.Token+"@", 1)
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--cluster", "farm", "--machine", "a", "--nats", url) })
	s.untilNodes("a up")
	claims, err := nats.JetStream.KeyValue(t.Context(), "nexus_farm_agents")
	if err == nil {
		_, err = claims.Put(t.Context(), base64.RawURLEncoding.EncodeToString([]byte("worker")), []byte(`{"format":2}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	const want = "a claim on an agent has format 2, and this program reads 1: upgrade it"
	eventually(t, "it is a warning", func() (none struct{}, err error) {
		_, answer, err := request(http.MethodGet, s.url+"/readyz", http.Header{"Authorization": {"Bearer " + s.key}}, "")
		if warnings := gjson.Get(answer, "warnings").Array(); err == nil && (len(warnings) != 1 || warnings[0].Str != "cluster: "+want) {
			err = errors.New(answer)
		}
		return none, err
	})
	if got := gjson.Get(s.call("/", "list_nodes", `{}`), "result.problem").Str; got != want {
		t.Errorf("nexus cluster status says %q", got)
	}
	for method, params := range map[string]string{"send": `{"content":"hello"}`, "get_model": `{}`, "shutdown": `{}`} {
		e := gjson.Get(s.call("/agent/worker", method, params), "error")
		if e.Get("data.type").Str != "NODE_UNREACHABLE" || !strings.Contains(e.Raw, "upgrade it") {
			t.Errorf("%s: %s", method, e.Raw)
		}
	}
	if e := gjson.Get(s.call("/", "create_agent", `{"agent_id":"worker"}`), "error"); !strings.Contains(e.Raw, "upgrade it") {
		t.Errorf("made anew: %s", e.Raw)
	}
	if n := strings.Count(s.log.String(), want); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}
