package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"nexus.internal/protocol/format"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/engine"
)

func TestMain(m *testing.M) { clustertest.Verify(m) }

// patience bounds what machines do on a busy one.
const patience = time.Minute

// agents is how many there are.
type agents int

func (a agents) Count() int { return int(a) }

// machine is one of a cluster: its engine, and this process as its node.
type machine struct {
	*cluster.Node
	name  string
	later *format.Later
	stop  func()
}

// farm are machines a, b, … of one cluster, each of which is closed with the test.
func farm(t *testing.T, n int) (machines []*machine, options []engine.Options) {
	t.Helper()
	join := clustertest.Addresses(t, n)
	for i, listen := range join {
		options = append(options, engine.Options{Name: "farm", Machine: string(rune('a' + i)), Listen: listen, Join: join, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats")})
		machines = append(machines, start(t, options[i]))
	}
	agree(t, machines...)
	return machines, options
}

// counted are so many members, none of which is removed.
type counted int

func (c counted) Count() int        { return int(c) }
func (counted) Counts(string) bool  { return true }
func (counted) Removed(string) bool { return false }

func start(t *testing.T, o engine.Options) *machine {
	t.Helper()
	e, err := engine.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	ready, err := e.Ready()
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc, err := nats.Connect("", cluster.Dialer(e), nats.Token(ready.Token), nats.MaxReconnects(-1), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	later := format.NewLater(nil)
	n, err := cluster.Join(nc, cluster.Options{Later: later, Cluster: o.Name, Machine: o.Machine, Members: counted(len(o.Join)), Replicas: min(3, len(o.Join)), Agents: agents(7), MaxAgents: 9, Labels: map[string]string{"at": o.Listen}, Version: "v1", Shared: []string{"/srv"}, File: filepath.Join(o.Dir, "set", "machine.json")})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{n, o.Machine, later, sync.OnceFunc(func() {
		n.Close()
		nc.Close()
		<-closed
		e.Close()
	})}
	t.Cleanup(m.stop)
	return m
}

func agree(t *testing.T, nodes ...*machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, n := range nodes {
		if err := n.Agreed(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// until waits until something is so, as it is told by an event or by time.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(patience)
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for !so() {
		select {
		case <-every.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

func states(n *machine) string {
	var all []string
	for _, m := range n.Machines() {
		all = append(all, m.Name+" "+string(m.State))
	}
	return strings.Join(all, ", ")
}

// Three machines know each other, and connect to each other and to themselves. One that leaves is known to have left; one that comes
// back is there again.
func TestMachines(t *testing.T) {
	t.Parallel()
	nodes, options := farm(t, 3)
	for _, n := range nodes {
		until(t, "all are known", func() bool { return states(n) == "a up, b up, c up" })
		l, err := n.Listen()
		if err != nil {
			t.Fatal(err)
		}
		var answering sync.WaitGroup
		t.Cleanup(func() { l.Close(); answering.Wait() })
		answering.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, n.name)
				c.Close()
			}
		})
	}
	for _, from := range nodes {
		for _, to := range []string{"a", "b", "c"} {
			c, err := from.Dial(t.Context(), to)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(c); err != nil || string(got) != to {
				t.Errorf("from %s to %s: %q, %v", from.name, to, got, err)
			}
			c.Close()
		}
	}
	if m := nodes[0].Machines()[2]; m.Labels["at"] != options[2].Listen || m.Version != "v1" || m.Load.Processors < 1 || m.Load.Agents != 7 || m.Load.MaxAgents != 9 || runtime.GOOS == "linux" && (m.Load.FreeBytes < 1 || m.Load.MemoryBytes <= m.Load.FreeBytes) {
		t.Errorf("of c is known %+v", m)
	}
	nodes[2].stop()
	until(t, "c has left", func() bool { return states(nodes[0]) == "a up, b up, c left" })
	if _, err := nodes[0].Dial(t.Context(), "c"); err == nil || err.Error() != "no server of that name is there" && err.Error() != "its server does not answer" {
		t.Errorf("a connection to who has left: %v", err)
	}
	again := start(t, options[2])
	agree(t, again)
	until(t, "c is back", func() bool { return states(nodes[0]) == "a up, b up, c up" && states(again) == "a up, b up, c up" })
}

// A machine that was lost before another one began is known to that one, too, if it has agents: it is lost as well, and nothing is known of it but that. Once it has none, it is
// not known at all.
func TestUnheard(t *testing.T) {
	t.Parallel()
	nodes, options := farm(t, 3)
	claim, err := nodes[2].Claim(t.Context(), "x", 0)
	if err != nil {
		t.Fatal(err)
	}
	nodes[2].stop()
	nodes[0].stop()
	again := start(t, options[0])
	agree(t, again)
	until(t, "c is known", func() bool { return states(again) == "a up, b up, c lost" })
	if c := again.Machines()[2]; !c.Heard.IsZero() || c.Version != "" {
		t.Errorf("of a machine that was not heard of is known %+v", c)
	}
	taken, err := again.Claim(t.Context(), "x", claim.Epoch)
	if err != nil || states(again) != "a up, b up" {
		t.Errorf("the last agent of c is a's: %s, %v", states(again), err)
	}
	if err := again.Give(t.Context(), "x", "c", taken.Epoch); err != nil || states(again) != "a up, b up, c lost" {
		t.Errorf("c has it again: %s, %v", states(again), err)
	}
	c := start(t, options[2])
	agree(t, c)
	until(t, "c is back", func() bool { return states(again) == "a up, b up, c up" })
}

// Two servers that are one machine at different addresses do not hear each other, as their servers of NATS have one name; the other machines tell both. A machine that is started
// again is one.
func TestTwins(t *testing.T) {
	t.Parallel()
	nodes, options := farm(t, 3)
	twins := func(want string, of ...*machine) {
		t.Helper()
		for _, n := range of {
			until(t, n.name+" knows the twins "+want, func() bool { return strings.Join(cluster.Twins(n.Node), " ") == want })
		}
	}
	nodes[2].stop()
	nodes[2] = start(t, options[2])
	agree(t, nodes[2])
	o := options[1]
	o.Listen, o.Dir = clustertest.Addresses(t, 1)[0], t.TempDir()
	o.Join = []string{options[0].Listen, options[2].Listen, o.Listen}
	other := start(t, o)
	twins("b", append(nodes, other)...)
	other.stop()
	twins("", nodes...)
}

// A machine that drains says so to all, and still does after a restart, until that is undone. An agent that it gives to another one is that one's at once, and
// giving it again says so; nobody gives away what another machine has.
func TestDrain(t *testing.T) {
	t.Parallel()
	nodes, options := farm(t, 3)
	draining := func(n *machine, want bool) {
		t.Helper()
		until(t, "it is known whether a drains", func() bool {
			m := n.Machines()[0]
			return m.State == cluster.Up && m.Draining == want && slices.Equal(m.Shared, []string{"/srv"})
		})
	}
	first, err := nodes[0].Claim(t.Context(), "x", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := nodes[0].Drain(true); err != nil {
		t.Fatal(err)
	}
	draining(nodes[2], true)
	for range 2 {
		if err := nodes[0].Give(t.Context(), "x", "b", first.Epoch); err != nil {
			t.Errorf("given away: %v", err)
		}
	}
	for _, n := range nodes {
		until(t, "b has the agent", func() bool { c, _ := n.Owner("x"); return c.Machine == "b" && c.Epoch > first.Epoch })
	}
	if err := nodes[0].Give(t.Context(), "x", "c", first.Epoch); !errors.Is(err, cluster.ErrClaimed) {
		t.Errorf("an agent of another machine is given away: %v", err)
	}
	nodes[0].stop()
	again := start(t, options[0])
	draining(nodes[2], true)
	if err := again.Drain(false); err != nil {
		t.Fatal(err)
	}
	draining(nodes[2], false)
	again.stop()
	if again = start(t, options[0]); again.Draining() {
		t.Error("a machine drains again that was to stop it")
	}
	again.stop()
	if err := os.WriteFile(filepath.Join(options[0].Dir, "set", "machine.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Join(nil, cluster.Options{Cluster: "farm", Machine: "a", Replicas: 1, File: filepath.Join(options[0].Dir, "set", "machine.json")}); err == nil || !strings.Contains(err.Error(), "machine.json") {
		t.Errorf("a damaged file: %v", err)
	}
}

// The labels of a machine change while it runs, which all hear, and what was changed goes over what it is started with. Too many change nothing.
func TestLabels(t *testing.T) {
	t.Parallel()
	nodes, options := farm(t, 3)
	known := func(want map[string]string) {
		t.Helper()
		until(t, "the labels of a are known", func() bool {
			m := nodes[2].Machines()[0]
			return m.State == cluster.Up && maps.Equal(m.Labels, want)
		})
	}
	label := func(n *machine, set map[string]string, remove []string, want map[string]string) {
		t.Helper()
		if got, err := n.Label(set, remove); err != nil || !maps.Equal(got, want) {
			t.Errorf("labels %v, %v, want %v", got, err, want)
		}
	}
	a, at := nodes[0], nodes[0].Machines()[0].Labels["at"]
	label(a, nil, nil, map[string]string{"at": at})
	label(a, map[string]string{"zone": "c", "gpu": ""}, []string{"at", "nothing"}, map[string]string{"zone": "c", "gpu": ""})
	known(map[string]string{"zone": "c", "gpu": ""})
	many := map[string]string{}
	for i := range 32 {
		many[fmt.Sprint(i)] = ""
	}
	if got, err := a.Label(many, nil); !errors.Is(err, cluster.ErrLabels) {
		t.Errorf("%d labels, %v", len(got), err)
	}
	label(a, nil, []string{"gpu"}, map[string]string{"zone": "c"})
	a.stop()
	a = start(t, options[0])
	known(map[string]string{"zone": "c"})
	label(a, map[string]string{"at": "home"}, nil, map[string]string{"zone": "c", "at": "home"})
	known(map[string]string{"zone": "c", "at": "home"})
}

// An agent is one machine's: of all that claim it at once one gets it, each later owner has a higher epoch, and an
// earlier one is refused. What was agreed on is there after all machines have ended.
func TestClaims(t *testing.T) {
	t.Parallel()
	nodes, options := farm(t, 3)
	ctx := t.Context()
	contend := func(after uint64) (won cluster.Claim) {
		var all sync.WaitGroup
		var mu sync.Mutex
		winners := 0
		for _, n := range nodes {
			all.Go(func() {
				c, err := n.Claim(ctx, "agent of .somebody/é", after)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners++
					won = c
				} else if !errors.Is(err, cluster.ErrClaimed) {
					t.Errorf("%s: %v", n.name, err)
				}
			})
		}
		all.Wait()
		if winners != 1 {
			t.Fatalf("%d machines have the agent", winners)
		}
		return won
	}
	first := contend(0)
	second := contend(first.Epoch)
	if second.Epoch <= first.Epoch {
		t.Errorf("epochs %d and %d", first.Epoch, second.Epoch)
	}
	for _, n := range nodes { // who claims it again, as the answer was lost, has it
		if c, err := n.Claim(ctx, "agent of .somebody/é", first.Epoch); n.name == second.Machine && (err != nil || c != second) || n.name != second.Machine && !errors.Is(err, cluster.ErrClaimed) {
			t.Errorf("%s claims once more what %s has: %+v, %v", n.name, second.Machine, c, err)
		}
	}
	for _, n := range nodes {
		until(t, "the owner is known", func() bool { c, ok := n.Owner("agent of .somebody/é"); return ok && c == second })
		if err := n.Release(ctx, "agent of .somebody/é", first.Epoch); !errors.Is(err, cluster.ErrClaimed) {
			t.Errorf("a release by an earlier owner: %v", err)
		}
	}
	for _, n := range nodes {
		n.stop()
	}
	nodes = nil
	for _, o := range options {
		nodes = append(nodes, start(t, o))
	}
	agree(t, nodes...)
	for _, n := range nodes {
		if c, ok := n.Owner("agent of .somebody/é"); !ok || c != second {
			t.Errorf("%s knows %+v, %v", n.name, c, ok)
		}
	}
	if err := nodes[0].Release(ctx, "agent of .somebody/é", second.Epoch); err != nil {
		t.Fatal(err)
	}
	until(t, "nobody has it", func() bool { _, ok := nodes[2].Owner("agent of .somebody/é"); return !ok })
	if third, err := nodes[1].Claim(ctx, "agent of .somebody/é", 0); err != nil || third.Epoch <= second.Epoch {
		t.Errorf("anew: %+v, %v", third, err)
	}
}

// Without a majority nothing is agreed on, in words; with one it is.
func TestMinority(t *testing.T) {
	t.Parallel()
	join := clustertest.Addresses(t, 3)
	o := func(i int) engine.Options {
		return engine.Options{Name: "farm", Machine: fmt.Sprint(i), Listen: join[i], Join: join, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats")}
	}
	alone := start(t, o(0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := alone.Agreed(ctx); !errors.Is(err, cluster.ErrNoQuorum) {
		t.Errorf("one of three agrees: %v", err)
	}
	if _, err := alone.Claim(t.Context(), "a", 0); !errors.Is(err, cluster.ErrNoQuorum) {
		t.Errorf("one of three has an agent: %v", err)
	}
	if since, err := alone.Cut(); !errors.Is(err, cluster.ErrNoQuorum) || !since.IsZero() {
		t.Errorf("one of three that never heard the others knows how they were at %v: %v", since, err)
	}
	heard := time.Now()
	second, third := start(t, o(1)), start(t, o(2))
	agree(t, alone, second, third)
	if _, err := alone.Claim(t.Context(), "a", 0); err != nil {
		t.Error(err)
	}
	second.stop()
	third.stop()
	if _, err := alone.Claim(t.Context(), "b", 0); !errors.Is(err, cluster.ErrNoQuorum) {
		t.Errorf("one that is left of three: %v", err)
	}
	if since, err := alone.Cut(); err == nil || since.Before(heard) {
		t.Errorf("what it has is old as of %v, when it was alone, which it was until %v: %v", since, heard, err)
	}
	if _, ok := alone.Owner("a"); !ok {
		t.Error("it has forgotten what was agreed on")
	}
}

// What is wrong with the options is said.
// A machine that was cut off, and hears the others again, agrees with them once it knows of all claims that were made meanwhile.
func TestBackFromACut(t *testing.T) {
	t.Parallel()
	machines, _ := farm(t, 3)
	a, b := machines[0], machines[1]
	until(t, "b hears the others", func() bool { return b.Check() == nil })
	for range 3 {
		c, err := a.Claim(t.Context(), "taken", 0)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "b knows the claim", func() bool { got, _ := b.Owner("taken"); return got == c })
		cluster.Miss(b.Node, "taken")
		if err := b.Check(); !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("a machine that is cut off: %v", err)
		}
		for late := time.Now().Add(patience); b.Check() != nil; runtime.Gosched() { // without a pause in which it may learn more
			if time.Now().After(late) {
				t.Fatal("b does not agree with the others again")
			}
		}
		if got, _ := b.Owner("taken"); got != c {
			t.Errorf("b agrees with the others, and knows the claim %+v, not %+v", got, c)
		}
		if err := a.Release(t.Context(), "taken", c.Epoch); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	for want, o := range map[string]cluster.Options{
		"the name of a cluster has": {Machine: "a", Replicas: 1},
		"the name of a machine has": {Cluster: "c", Machine: "a b", Replicas: 1},
		"a label is a name":         {Cluster: "c", Machine: "a", Replicas: 1, Labels: map[string]string{"a=b": "c"}},
		"1 to 5 of them, not on 0":  {Cluster: "c", Machine: "a"},
	} {
		if n, err := cluster.Join(nil, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
			n.Close()
		}
	}
}
