package cluster_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/fixtures"
	"nexus.internal/supervisor/cluster"
)

// claims is the bucket of claims, as programs of any version have it.
func claims(t *testing.T, m *machine) jetstream.KeyValue {
	t.Helper()
	bucket, err := m.JetStream().KeyValue(t.Context(), "nexus_farm_agents")
	if err != nil {
		t.Fatal(err)
	}
	return bucket
}

// isKept waits until the claim on an agent is kept so, as the machine that is asked may know a moment later.
func isKept(t *testing.T, m *machine, agent, want string) (epoch uint64) {
	t.Helper()
	until(t, agent+" is kept as "+want+"; if another form is meant, it is another format", func() bool {
		entry, err := claims(t, m).Get(t.Context(), keyOf(agent))
		if err != nil || string(entry.Value()) != want {
			return false
		}
		epoch = entry.Revision()
		return true
	})
	return epoch
}

func keyOf(agent string) string { return base64.RawURLEncoding.EncodeToString([]byte(agent)) }

// Claims are kept and told as it was recorded, and what was recorded is read.
func TestRecordedClaims(t *testing.T) {
	t.Parallel()
	nodes, _ := farm(t, 2)
	told, err := nodes[1].JetStream().Conn().SubscribeSync("nexus.farm.claimed")
	if err == nil {
		err = nodes[1].JetStream().Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "b hears a", func() bool { return states(nodes[1]) == "a up, b up" && states(nodes[0]) == "a up, b up" })
	claim, err := nodes[0].Claim(t.Context(), "worker", 0)
	if err != nil {
		t.Fatal(err)
	}
	isKept(t, nodes[0], "worker", string(fixtures.Read(t, "cluster/claim-1.json")))
	message, err := told.NextMsg(patience)
	recorded := string(fixtures.Read(t, "cluster/told-claim-1.json"))
	if want := strings.Replace(recorded, `"epoch":1`, fmt.Sprintf(`"epoch":%d`, claim.Epoch), 1); err != nil || string(message.Data) != want {
		t.Errorf("a claim is told as %s, want %s, %v; if that is meant, it is another format", message.Data, want, err)
	}
	kept, err := claims(t, nodes[0]).Put(t.Context(), keyOf("recorded"), fixtures.Read(t, "cluster/claim-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	early := strings.Replace(recorded, `"worker","machine":"a","epoch":1`, `"early","machine":"a","epoch":1000`, 1)
	if err := nodes[1].JetStream().Conn().Publish("nexus.farm.claimed", []byte(early)); err != nil {
		t.Fatal(err)
	}
	until(t, "what was recorded is read", func() bool {
		c, _ := nodes[0].Owner("recorded")
		of, _ := nodes[0].Owner("early")
		return c == cluster.Claim{Machine: "a", Epoch: kept} && of == cluster.Claim{Machine: "a", Epoch: 1000}
	})
	if all := nodes[0].later.Warnings(); len(all) != 0 {
		t.Errorf("warnings: %q", all)
	}
}

// An agent whose claim has a later format, or is damaged, is another machine's: nobody claims it, takes it over, gives it away or gives it up. A claim that is
// told of in a later format is not taken.
func TestLaterClaim(t *testing.T) {
	t.Parallel()
	nodes, _ := farm(t, 2)
	a, ctx := nodes[0], t.Context()
	if _, err := a.Claim(ctx, "later", 0); err != nil {
		t.Fatal(err)
	}
	for agent, text := range map[string]string{"later": `{"machine":"a","format":2}`, "damaged": `{"machine"`, "nameless": `{"machine":""}`} {
		epoch, err := claims(t, a).Put(ctx, keyOf(agent), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		unread := cluster.Claim{Machine: cluster.Unreadable, Epoch: epoch}
		until(t, "it is known", func() bool { c, _ := a.Owner(agent); return c == unread })
		_, anew := a.Claim(ctx, agent, 0)
		_, after := a.Claim(ctx, agent, epoch)
		for what, err := range map[string]error{"claimed": anew, "taken over": after, "given away": a.Give(ctx, agent, "b", epoch), "given up": a.Release(ctx, agent, epoch)} {
			if !errors.Is(err, cluster.ErrClaimed) {
				t.Errorf("%s: %s: %v", agent, what, err)
			}
		}
		if c, err := a.Take(ctx, agent); c != unread || err != nil {
			t.Errorf("%s: its claim is %+v, %v", agent, c, err)
		}
		if now := isKept(t, a, agent, text); now != epoch {
			t.Errorf("%s: it was changed", agent)
		}
	}
	if slices.Contains(a.Owned(), "later") {
		t.Error("a machine has the agent")
	}
	until(t, "a machine that was never heard of is gone", func() bool { return a.Gone("never") })
	if a.Gone(cluster.Unreadable) {
		t.Error("the machine of a claim that is not read is gone, so that its agents are taken over")
	}
	if _, err := a.Dial(ctx, cluster.Unreadable); err == nil || !strings.Contains(err.Error(), "upgrade it") {
		t.Errorf("dialled: %v", err)
	}
	for _, text := range []string{`{"agent":"told","machine":"b","epoch":1000,"format":3}`, `{"agent":"after","machine":"b","epoch":1001}`} {
		if err := a.JetStream().Conn().Publish("nexus.farm.claimed", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "what was told then is known", func() bool { _, ok := a.Owner("after"); return ok })
	if c, ok := a.Owner("told"); ok {
		t.Errorf("of what was told in a later format is known %+v", c)
	}
	want := []string{"a claim on an agent has format 2, and this program reads 1: upgrade it", "a claim that a machine tells of has format 3, and this program reads 1: upgrade it"}
	if got := a.later.Warnings(); !slices.Equal(got, want) {
		t.Errorf("warnings: %q", got)
	}
}

// A machine that says of itself in a later format what it is, is there and up, with an unknown version, until it has left; one of format 1 is known whole.
func TestLaterBeat(t *testing.T) {
	t.Parallel()
	nodes, _ := farm(t, 2)
	a := nodes[0]
	say := func(text string) {
		t.Helper()
		if err := nodes[1].JetStream().Conn().Publish("nexus.farm.machines", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	known := func(name string) (of cluster.Machine) {
		for _, m := range a.Machines() {
			if m.Name == name {
				of = m
			}
		}
		return of
	}
	until(t, "what was recorded is known", func() bool {
		say(string(fixtures.Read(t, "cluster/beat-1.json")))
		m := known("z")
		return m.State == cluster.Up && m.Version == "v1" && m.Draining
	})
	until(t, "one of a later format is up", func() bool {
		say(`{"format":2,"name":"later","process":"P","version":{"major":9},"state":{"up":true},"load":[1]}`)
		m := known("later")
		return m.State == cluster.Up && m.Version == cluster.UnknownVersion
	})
	until(t, "it has left", func() bool {
		say(`{"format":2,"name":"later","process":"P","state":"left"}`)
		return known("later").State == cluster.Left
	})
	say(`{"format":2,"process":"P"}`) // nobody
	say(`{"format":2,"name":"last","process":"P"}`)
	until(t, "what was said last is known", func() bool { return known("last").State == cluster.Up })
	if got := a.later.Warnings(); !slices.Equal(got, []string{"what a machine says of itself has format 2, and this program reads 1: upgrade it"}) || known("").State != "" {
		t.Errorf("warnings: %q, of nobody is known %+v", got, known(""))
	}
}
