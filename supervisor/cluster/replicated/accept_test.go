package replicated_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster/clustertest"
)

const listsBucket = "nexus_farm_accepted"

// listed is what the list of the agent worker has in the machines' memory; "" if there is none.
func (m *machine) listed() string {
	bucket, err := m.nats.JetStream.KeyValue(within(m.t), listsBucket)
	if err != nil {
		return ""
	}
	entry, err := bucket.Get(within(m.t), base64.RawURLEncoding.EncodeToString([]byte("worker")))
	if err != nil {
		return ""
	}
	return string(entry.Value())
}

// accepts accepts a prompt, and waits until the list has it, unless that is not to be.
func (m *machine) accepts(r supervisor.Records, id string, listed bool) {
	m.t.Helper()
	if err := r.Accept(id, [32]byte{}); err != nil {
		m.t.Fatal(err)
	}
	if !listed {
		if all := m.listed(); strings.Contains(all, `"`+id+`"`) {
			m.t.Errorf("%s is on the list: %s", id, all)
		}
		return
	}
	until(m.t, id+" is on the list", func() bool { return strings.Contains(m.listed(), `"`+id+`"`) })
}

// isListed waits until prompts are accepted by the list again, once it is renewed: each looks whether it is.
func (m *machine) isListed(r supervisor.Records, agent string) {
	m.t.Helper()
	n := 0
	until(m.t, "prompts are accepted by the list", func() bool {
		n++
		id := fmt.Sprintf("again%d", n)
		m.turn(r, agent, id)
		return strings.Contains(m.listed(), `"`+id+`"`)
	})
}

// A prompt that was accepted by the memory of the others alone is known to the machine that takes the agent over, and to the next one if that is lost before it has
// told of it. Its earlier owner accepts none.
func TestAcceptedInMemory(t *testing.T) {
	t.Parallel()
	a, b, c := three(t)
	a.claim("worker")
	r := a.open("worker", true)
	a.isListed(r, "worker")
	a.accepts(r, "cut", true)
	a.stop() // nothing more is shipped
	b.takes("worker")
	next := b.open("worker", false)
	b.stop()
	c.takes("worker")
	for who, r := range map[string]supervisor.Records{"the next machine": next, "the one after": c.open("worker", false)} {
		if got := past(r); !strings.HasSuffix(got, "completed, cut cut") {
			t.Errorf("%s knows %s", who, got)
		}
	}
}

// A prompt that nobody can repeat is on the list only if it has not ended a moment later, and at once if this machine has agreed with a majority on nothing lately. Another
// machine that takes the agent over knows of those that were listed, or shipped.
func TestUnnamed(t *testing.T) {
	t.Parallel()
	a, b, _ := three(t)
	a.TellAfter(time.Hour)
	a.claim("worker")
	r := a.open("worker", true)
	a.isListed(r, "worker")
	unnamed := func(id string) {
		t.Helper()
		if err := r.AcceptUnnamed(id, [32]byte{}); err != nil {
			t.Fatal(err)
		}
	}
	listed := func(id string) bool { return strings.Contains(a.listed(), `"`+id+`"`) }
	a.accepts(r, "before", true)
	unnamed("quick")
	a.accepts(r, "behind", true)
	if listed("quick") {
		t.Error("a prompt without a name is listed at once")
	}
	a.ForgetAgreement()
	unnamed("careful")
	if !listed("careful") {
		t.Error("a prompt without a name is taken by a machine that may be alone")
	}
	r.End(supervisor.Result{TurnID: "quick", Outcome: supervisor.Completed})
	if err := r.Settle(); err != nil {
		t.Fatal(err)
	}
	a.TellAfter(time.Millisecond)
	unnamed("slow")
	until(t, "slow is listed", func() bool { return listed("slow") })
	a.TellAfter(time.Hour)
	unnamed("last") // until the records are closed
	a.stop()
	b.takes("worker")
	if got := past(b.open("worker", false)); !strings.HasSuffix(got, "quick completed, before cut, behind cut, careful cut, slow cut") && !strings.HasSuffix(got, "quick completed, before cut, behind cut, careful cut, slow cut, last cut") {
		t.Errorf("the next machine knows %s", got)
	}
}

// Where a machine does not know of the lists, or there are none, prompts are accepted by shipping the files, and by the list once it is there again.
func TestWithoutLists(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	a := start(t, farm[0], t.TempDir(), shared)
	a.claim("worker")
	r := a.open("worker", true)
	a.isListed(r, "worker")

	old := func(state string) {
		t.Helper()
		if err := farm[1].NATS().Publish("nexus.farm.machines", fmt.Appendf(nil, `{"name":"old","process":"P","version":"v1","state":%q}`, state)); err != nil {
			t.Fatal(err)
		}
		until(t, "old is "+state, func() bool {
			for _, m := range a.node.Machines() {
				if m.Name == "old" {
					return string(m.State) == state
				}
			}
			return false
		})
	}
	old("up")
	a.accepts(r, "beside an earlier version", false)
	old("left")
	a.accepts(r, "without it", true)

	if err := farm[0].JetStream.DeleteKeyValue(within(t), listsBucket); err != nil {
		t.Fatal(err)
	}
	a.accepts(r, "without lists", false)
	a.isListed(r, "worker")
	for i := range 40 { // more than a list has
		if err := r.Accept(fmt.Sprintf("many%d", i), [32]byte{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if got := past(a.open("worker", false)); strings.Count(got, "many") != 40 || !strings.Contains(got, "without lists cut") {
		t.Errorf("recorded are %s", got)
	}
}
