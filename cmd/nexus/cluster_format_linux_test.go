package main_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/tidwall/gjson"

	"nexus.internal/fixtures"
	"nexus.internal/supervisor/cluster/clustertest"
)

// A server meets what later programs keep: it says so where operators look, and leaves the agent to others with the reason.
func TestClusterLaterFormat(t *testing.T) {
	t.Parallel()
	nats := clustertest.Start(t, 3)[0]
	ready := nats.Ready()
	url := "nats://" + ready.Token + "@" + atPort(t, ready.Socket)
	s := newLive(t, func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, "--cluster", "farm", "--machine", "a", "--nats", url, "--rate", "100000")
	})
	s.untilNodes("a up")
	rates, err := nats.NATS().SubscribeSync("nexus.farm.told.rates.*")
	if err != nil {
		t.Fatal(err)
	}
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
	laterRun(t, s, nats)
	laterMachine(t, s, nats)
	laterRates(t, s, nats, rates)
	s.end()
	if n := strings.Count(s.log.String(), want); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

// tell publishes a text to the machines of the farm.
func tell(t *testing.T, nats *clustertest.Machine, topic, text string) {
	t.Helper()
	if err := nats.NATS().Publish("nexus.farm."+topic, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// laterRun asks for a run whose holder is told in a later format.
func laterRun(t *testing.T, s *live, nats *clustertest.Machine) {
	t.Helper()
	get := func() string { return gjson.Get(s.call("/", "get_run", `{"plan_run_id":"run"}`), "error.data").Raw }
	if answer := get(); strings.Contains(answer, "NODE_UNREACHABLE") {
		t.Errorf("a run that nobody has: %s", answer)
	}
	held, err := nats.JetStream.KeyValue(t.Context(), "nexus_farm_held")
	sum := sha256.Sum256([]byte("plan/run"))
	if err == nil {
		_, err = held.Put(t.Context(), hex.EncodeToString(sum[:]), []byte(`{"format":2}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "another machine has the run", func() (none struct{}, err error) {
		if answer := get(); !strings.Contains(answer, "NODE_UNREACHABLE") || !strings.Contains(answer, "upgrade it") {
			err = errors.New(answer)
		}
		return none, err
	})
}

// laterMachine is a machine that says in a later format what it is: it is listed, and gets no agents.
func laterMachine(t *testing.T, s *live, nats *clustertest.Machine) {
	t.Helper()
	const beat = `{"format":2,"name":"z","process":"P","labels":["none"]}`
	eventually(t, "it is up", func() (none struct{}, err error) {
		tell(t, nats, "machines", beat)
		if z := gjson.Get(s.call("/", "list_nodes", `{}`), `result.nodes.#(node=="z")`); z.Get("state").Str != "up" || z.Get("version").Str != "unknown" {
			err = errors.New(z.Raw)
		}
		return none, err
	})
	for i := range 3 {
		tell(t, nats, "machines", beat)
		id := fmt.Sprintf("placed-%d", i)
		if answer := s.call("/", "create_agent", `{"agent_id":"`+id+`","place":{}}`); gjson.Get(answer, "result.agent_id").Str != id {
			t.Errorf("an agent that any machine may have: %s", answer)
		}
	}
}

// laterRates has the rates of keys told and heard as they were recorded, and not heard in a later format.
func laterRates(t *testing.T, s *live, nats *clustertest.Machine, told *natsgo.Subscription) {
	t.Helper()
	recorded := string(fixtures.Read(t, "cluster/rates-1.json"))
	form := regexp.MustCompile(`^\{"([0-9a-f]{12})":[0-9]+\}$`)
	m, err := told.NextMsg(patience)
	if err != nil {
		t.Fatal(err)
	}
	key := form.FindSubmatch(m.Data)
	if key == nil || !form.MatchString(recorded) {
		t.Fatalf("it is told as %s, and recorded as %s; if that is meant, it is another format", m.Data, recorded)
	}
	tell(t, nats, "told.rates.other", fmt.Sprintf(`{"format":2,"%s":1000000}`, key[1]))
	eventually(t, "it is met", func() (none struct{}, err error) {
		answer := s.call("/", "list_nodes", `{}`)
		if gjson.Get(answer, "error").Exists() {
			t.Fatalf("what was told in a later format counts: %s", answer)
		}
		_, answer, err = request(http.MethodGet, s.url+"/readyz", http.Header{"Authorization": {"Bearer " + s.key}}, "")
		if err == nil && !strings.Contains(answer, "what a machine tells of rates has format 2, and this program reads 1: upgrade it") {
			err = errors.New(answer)
		}
		return none, err
	})
	tell(t, nats, "told.rates.other", strings.Replace(strings.Replace(recorded, "0123456789ab", string(key[1]), 1), "3}", "1000000}", 1))
	eventually(t, "what was told counts", func() (none struct{}, err error) {
		if answer := s.call("/", "list_nodes", `{}`); !strings.Contains(answer, "RATE_LIMITED") {
			err = errors.New(answer)
		}
		return none, err
	})
}
