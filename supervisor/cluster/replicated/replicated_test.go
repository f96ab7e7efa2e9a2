package replicated_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nexus.internal/fixtures"
	"nexus.internal/protocol/format"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/replicated"
	"nexus.internal/supervisor/store"
)

func TestMain(m *testing.M) { clustertest.Verify(m) }

// long bounds what machines do on a busy one.
const long = 2 * time.Minute

// where says that all agents work in a directory, and go on in an empty one if it begins with this word.
type where struct {
	*machine
	cwd string
}

const fresh = "fresh:"

func (w where) Place(agent string) replicated.Place {
	cwd, anew := strings.CutPrefix(w.cwd, fresh)
	return replicated.Place{Cwd: cwd, Fresh: anew, Creator: created[agent]}
}

// created are agents of tests, and who has created each.
var created = map[string]string{"child": "creator", "orphan": "nobody"}

func (w where) Lose(agent, machine string) error {
	w.says(agent, "without-"+machine)
	return nil
}

// machine is one of a cluster, with a home.
type machine struct {
	*replicated.Store
	t     *testing.T
	nats  *clustertest.Machine
	node  *cluster.Node
	local *store.Local
	later *format.Later
	home  string
	stop  func()
}

// shared is what all machines share.
const shared = "/srv/shared"

// start is startSharing of shared.
func start(t *testing.T, nats *clustertest.Machine, home, cwd string) *machine {
	t.Helper()
	return startSharing(t, nats, home, cwd, shared)
}

// startBounded starts a server that bounds what the machines keep, in bytes.
func startBounded(t *testing.T, nats *clustertest.Machine, home string, bytes int64) *machine {
	t.Helper()
	return startAs(t, nats, home, shared, bytes, shared)
}

// startSharing starts a server in a home, on a machine whose server of NATS runs.
func startSharing(t *testing.T, nats *clustertest.Machine, home, cwd string, dirs ...string) *machine {
	t.Helper()
	return startAs(t, nats, home, cwd, 0, dirs...)
}

func startAs(t *testing.T, nats *clustertest.Machine, home, cwd string, bytes int64, dirs ...string) *machine {
	t.Helper()
	node, err := cluster.Join(nats.NATS(), cluster.Options{Cluster: "farm", Machine: nats.Name(), Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, nats: nats, node: node, later: format.NewLater(nil), home: home}
	m.local = store.NewLocal(store.Options{Layout: store.Layout{Named: m.path(""), Temp: filepath.Join(home, "temp")}})
	m.Store = replicated.New(replicated.Options{Local: m.local, Root: m.path(""), Dir: filepath.Join(home, "cluster"), Shared: dirs, MaxBytes: bytes, Dirs: where{m, cwd}, Later: m.later})
	stopped := false
	m.stop = func() {
		if !stopped {
			stopped = true
			m.Close()
			m.local.Close()
			node.Close()
		}
	}
	t.Cleanup(m.stop)
	if err := m.Start(node); err != nil {
		t.Fatal(err)
	}
	if err := node.Agreed(within(t)); err != nil {
		t.Fatal(err)
	}
	return m
}

// three are the machines of a cluster, whose agents all work in a directory that they share.
func three(t *testing.T) (a, b, c *machine) {
	t.Helper()
	farm := clustertest.Start(t, 3)
	for i, m := range []**machine{&a, &b, &c} {
		*m = start(t, farm[i], t.TempDir(), shared+"/work")
	}
	return a, b, c
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	t.Cleanup(cancel)
	return ctx
}

// path is that of a session's part; "" is the directory.
func (m *machine) path(name string) string { return filepath.Join(m.home, "sessions", name) }

// claim makes an agent the machine's.
func (m *machine) claim(agent string) {
	m.t.Helper()
	if c, err := m.node.Take(within(m.t), agent); err != nil || c.Machine != m.nats.Name() {
		m.t.Fatalf("%s is of %s, %v", agent, c.Machine, err)
	}
	if err := m.Prepare(within(m.t), agent); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) open(agent string, fresh bool) supervisor.Records {
	m.t.Helper()
	r, err := m.Open(agent, fresh)
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// says appends to an agent's session, as its process does.
func (m *machine) says(agent, line string) {
	m.t.Helper()
	f, err := os.OpenFile(m.path(agent+".jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line + "\n")
	}
	if err = errors.Join(err, f.Close()); err != nil {
		m.t.Fatal(err)
	}
}

// said is an agent's session, without what nobody was told of, which may have been shipped; "" if there is none.
func (m *machine) said(agent string) string {
	text, err := os.ReadFile(m.path(agent + ".jsonl"))
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	return strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", " "), " lost", "")
}

// turn is one that is acknowledged.
func (m *machine) turn(r supervisor.Records, agent, id string) {
	m.t.Helper()
	if err := r.Accept(id, [32]byte{}); err != nil {
		m.t.Fatal(err)
	}
	m.says(agent, id)
	r.Append(supervisor.Event{Seq: r.Last() + 1, Type: "note", Data: []byte(`{"type":"note"}`)})
	r.End(supervisor.Result{TurnID: id, Outcome: supervisor.Completed, Text: id})
	if err := r.Settle(); err != nil {
		m.t.Fatal(err)
	}
}

// past is what records tell of the time before they were opened, as in "one completed, two cut".
func past(r supervisor.Records) string {
	var all []string
	r.Past(func(id string, _ [32]byte, ended *supervisor.Result) {
		if ended == nil {
			all = append(all, id+" cut")
		} else {
			all = append(all, fmt.Sprint(id, " ", ended.Outcome))
		}
	})
	return strings.Join(all, ", ")
}

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(long)
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	for !so() {
		select {
		case <-every.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// takes has a machine take over an agent, once it is to.
func (m *machine) takes(agent string) {
	m.t.Helper()
	until(m.t, m.nats.Name()+" is to take over "+agent, func() bool { return slices.Contains(m.Orphans(within(m.t)), agent) })
	until(m.t, agent+" is taken over", func() bool {
		return m.TakeOver(within(m.t), agent) == nil && m.Prepare(within(m.t), agent) == nil
	})
	if c, _ := m.node.Owner(agent); c.Machine != m.nats.Name() {
		m.t.Fatalf("%s is of %s", agent, c.Machine)
	}
}

// The life of an agent over three machines: what was acknowledged is on the next one when one is gone, what was not is told as cut off, and
// a machine that is back is refused, sets aside what it has, and may have the agent again.
func TestLife(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	homes := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	a := start(t, farm[0], homes[0], shared+"/work")
	b := start(t, farm[1], homes[1], shared+"/work")
	a.claim("worker")
	r := a.open("worker", true)
	a.turn(r, "worker", "one")
	if err := r.Accept("two", [32]byte{}); err != nil {
		t.Fatal(err)
	}
	a.says("worker", "lost") // nobody was told of it

	a.node.Close() // it is not heard of any more, and goes on
	b.takes("worker")
	if got := b.said("worker"); got != "one" {
		t.Errorf("on the next machine it has said %q", got)
	}
	next := b.open("worker", false)
	if got := next.Origin(); got != (supervisor.Origin{Machine: "a", Left: true}) {
		t.Errorf("it is taken over from %+v", got)
	}
	if got := past(next); got != "one completed, two cut" {
		t.Errorf("on the next machine: %s", got)
	}
	if next.Last() <= r.Last() {
		t.Errorf("its events go on after %d, and were at %d", next.Last(), r.Last())
	}
	r.End(supervisor.Result{TurnID: "two", Outcome: supervisor.Completed})
	if err := r.Settle(); !errors.Is(err, supervisor.ErrMoved) {
		t.Errorf("the earlier owner: %v", err)
	}
	if err := r.Accept("three", [32]byte{}); !errors.Is(err, supervisor.ErrMoved) {
		t.Errorf("the earlier owner: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	b.turn(next, "worker", "three")
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if next = b.open("worker", false); next.Origin() != (supervisor.Origin{}) {
		t.Errorf("when it is opened again: %+v", next.Origin())
	}

	a.stop()
	a = start(t, farm[0], homes[0], shared+"/work")
	if got := a.Taken(within(t)); !slices.Equal(got, []string{"worker"}) {
		t.Errorf("what others have taken meanwhile: %v", got)
	}
	if err := a.GiveUp(within(t), "worker"); err != nil || a.said("worker") != "" || a.Taken(within(t)) != nil {
		t.Errorf("what was given up: %q, %v, %v", a.said("worker"), a.Taken(within(t)), err)
	}
	if aside, _ := filepath.Glob(filepath.Join(homes[0], "cluster", "aside", "*", "worker.jsonl")); len(aside) != 1 {
		t.Errorf("set aside are %v", aside)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	b.stop()
	a.takes("worker")
	if got := a.said("worker"); got != "one three" {
		t.Errorf("back on the first machine it has said %q", got)
	}
	r = a.open("worker", false)
	if got := past(r); got != "one completed, two cut, three completed" && got != "one completed, three completed, two cut" {
		t.Errorf("back on the first machine: %s", got)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Forget(within(t), "worker"); err != nil {
		t.Fatal(err)
	}
	claim, _ := a.node.Owner("worker")
	if err := a.node.Release(within(t), "worker", claim.Epoch); err != nil {
		t.Fatal(err)
	}
	c := start(t, farm[2], homes[2], shared+"/work")
	c.claim("worker")
	if got := c.said("worker"); got != "" {
		t.Errorf("an agent that was removed has said %q", got)
	}
}

// A machine that has taken over an agent, and is lost before it has shipped anything of it, may have told of events: the next one gives their numbers to no others.
func TestNumbersAreGivenOnce(t *testing.T) {
	t.Parallel()
	a, b, c := three(t)
	a.claim("worker")
	a.turn(a.open("worker", true), "worker", "one")
	a.node.Close() // it is not heard of any more, and goes on
	b.takes("worker")
	told := b.open("worker", false).Last() + 1
	b.stop()
	c.takes("worker")
	if next := c.open("worker", false).Last() + 1; next <= told {
		t.Errorf("the next machine gives %d, of which the one before has told", next)
	}
}

// What was saved before, or is changed while no agent runs, is shipped, once; a server that starts again ships nothing.
func TestSavedIsShipped(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, "sessions"), 0o700); err != nil {
		t.Fatal(err)
	}
	a := start(t, farm[0], home, shared)
	a.says("old", "of the time before")
	a.claim("old")
	notes, err := filepath.Glob(filepath.Join(home, "cluster", "laid", "*"))
	if err != nil || len(notes) != 1 {
		t.Fatalf("%v, %v", notes, err)
	}
	shipped := func() string {
		text, err := os.ReadFile(notes[0])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `"files"`) {
			return ""
		}
		return string(text)
	}
	until(t, "it is shipped", func() bool { return shipped() != "" })
	first := shipped()
	a.says("old", "and more")
	until(t, "it is shipped again", func() bool { return shipped() != first })
	a.stop()
	a = start(t, farm[0], home, "/home/alone") // a directory that is not shared, and would be told if it were shipped again
	a.ShipAll(within(t))
	a.stop()
	b := start(t, farm[1], t.TempDir(), shared)
	b.takes("old")
	if got := b.said("old"); got != "of the time before and more" {
		t.Errorf("on the next machine it has said %q", got)
	}
}

// An agent whose directory only one machine shares waits for it, until both do.
func TestBound(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	home := t.TempDir()
	a := startSharing(t, farm[0], home, shared)
	b := start(t, farm[1], t.TempDir(), shared)
	a.claim("worker")
	r := a.open("worker", true)
	a.turn(r, "worker", "one")
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	a.stop()
	until(t, "a is gone", func() bool { return b.node.Gone("a") })
	if got := b.Orphans(within(t)); got != nil {
		t.Errorf("b is to take over %v", got)
	}
	a = start(t, farm[0], home, shared) // the same directory, which it shares now
	a.ShipAll(within(t))
	a.stop()
	b.takes("worker")
}

// An agent that is to go on in an empty directory is taken over where its own is not shared, once, by each machine that takes it over; one that
// shares the directory comes first, and there it keeps that.
func TestFresh(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	home := t.TempDir()
	a := start(t, farm[0], home, fresh+"/home/alone")
	b := start(t, farm[1], t.TempDir(), fresh+"/home/new")
	c := start(t, farm[2], t.TempDir(), fresh+"/home/new")
	a.claim("worker")
	r := a.open("worker", true)
	a.turn(r, "worker", "one")
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	a.stop()
	b.takes("worker")
	if got := b.said("worker"); got != "one without-a" {
		t.Errorf("on the next machine it has said %q", got)
	}
	r = b.open("worker", false)
	b.turn(r, "worker", "two")
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	a = start(t, farm[0], home, fresh+"/home/alone")
	if got := a.Orphans(within(t)); got != nil || a.GiveUp(within(t), "worker") != nil {
		t.Errorf("the machine that is back is to take over %v", got)
	}
	if owner, _ := a.node.Owner("worker"); owner.Machine != "b" || a.said("worker") != "" {
		t.Errorf("when its machine is back, %s has the agent, and the machine %q", owner.Machine, a.said("worker"))
	}
	b.stop()
	c.takes("worker")
	if got := c.said("worker"); got != "one without-a two without-b" {
		t.Errorf("on the third machine it has said %q", got)
	}
}

// Agents with names that differ in one letter do not all go to one machine.
func TestWeight(t *testing.T) {
	won := map[string]int{}
	for letter := 'a'; letter <= 'z'; letter++ {
		agent, best := "worker-"+string(letter), "b"
		if replicated.Weight("c", agent) > replicated.Weight("b", agent) {
			best = "c"
		}
		won[best]++
	}
	if won["b"] < 5 || won["c"] < 5 {
		t.Errorf("of 26 agents the machines get %v", won)
	}
}

// Where the directory is shared by one of two machines that may have the agent, that one takes it, and the agent keeps its directory.
func TestFreshAndShared(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	a := start(t, farm[0], t.TempDir(), fresh+shared)
	b := startSharing(t, farm[1], t.TempDir(), fresh+"/home/new")
	c := start(t, farm[2], t.TempDir(), fresh+"/home/new")
	for _, agent := range []string{"one", "two", "three", "four"} { // chance would not leave all to c
		a.claim(agent)
		r := a.open(agent, true)
		a.turn(r, agent, "first")
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	a.stop()
	until(t, "c has all", func() bool {
		for _, m := range []*machine{b, c} {
			for _, agent := range m.Orphans(within(t)) {
				if m == b {
					t.Fatalf("b, which does not share its directory, is to take over %s", agent)
				}
				if err := errors.Join(m.TakeOver(within(t), agent), m.Prepare(within(t), agent)); err != nil {
					t.Log(err) // it is tried again
				}
			}
		}
		return len(c.node.Owned()) == 4
	})
	for _, agent := range c.node.Owned() {
		if got := c.said(agent); got != "first" {
			t.Errorf("%s has said %q", agent, got)
		}
	}
}

// Where the machines have no more room, a prompt is refused at once, and an outcome that is not kept is not told; what is deleted makes room.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	a := startBounded(t, farm[0], t.TempDir(), 1<<20)
	a.claim("worker")
	r := a.open("worker", true)
	a.turn(r, "worker", "one")
	if err := r.Accept("two", [32]byte{}); err != nil {
		t.Fatal(err)
	}
	a.says("worker", strings.Repeat("much ", 400_000))
	r.End(supervisor.Result{TurnID: "two", Outcome: supervisor.Completed})
	if err := r.Settle(); !errors.Is(err, supervisor.ErrNoRoom) {
		t.Errorf("an outcome without room: %v", err)
	}
	if err := r.Accept("three", [32]byte{}); !errors.Is(err, supervisor.ErrNoRoom) {
		t.Errorf("a prompt without room: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Forget(within(t), "worker"); err != nil {
		t.Fatalf("without room, nothing is removed: %v", err)
	}
	a.claim("other")
	r = a.open("other", true)
	a.turn(r, "other", "one")
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Agents of which a later program has shipped something wait for a machine that reads it; the others are taken over.
func TestLaterFormat(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	a := start(t, farm[0], t.TempDir(), shared)
	b := start(t, farm[1], t.TempDir(), shared)
	later := bytes.Replace(fixtures.Read(t, "cluster/mirror-1.txt"), []byte(`"format":1`), []byte(`"format":3`), 1)
	for _, agent := range []string{"later-1", "later-2", "later-3", "worker"} {
		a.claim(agent)
		r := a.open(agent, true)
		a.turn(r, agent, "one")
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if agent == "worker" {
			continue
		}
		text := later
		if agent == "later-3" { // which says something of the agent in a later format, in a message that can be read
			text = bytes.Replace(fixtures.Read(t, "cluster/mirror-1.txt"), []byte(`"about":{`), []byte(saidLater), 1)
			text = bytes.Replace(text, []byte(`"epoch":7`), []byte(`"epoch":1`), 1)
		}
		if _, err := farm[0].JetStream.Publish(within(t), subject(agent), text); err != nil {
			t.Fatal(err)
		}
	}
	a.stop()
	a = start(t, farm[0], a.home, shared)
	if err := a.Ship(within(t), "later-3"); !errors.Is(err, supervisor.ErrUnrecorded) || !strings.Contains(err.Error(), "upgrade it") {
		t.Errorf("what a later program has said of an agent is said anew: %v", err)
	}
	if last, err := lastSaid(t, farm[0], "later-3"); err != nil || !strings.Contains(last, saidLater) {
		t.Errorf("what was said last is %s, %v", last, err)
	}
	if last, err := lastSaid(t, farm[0], "worker"); err != nil || !strings.Contains(last, `"about":{"machine":"a","cwd":"`+shared+`","shared":true}`) {
		t.Errorf("of the worker was said %s, %v", last, err)
	}
	a.node.Close() // it is not heard of any more
	b.takes("worker")
	if got := b.said("worker"); got != "one" {
		t.Errorf("it has said %q", got)
	}
	if got := b.Orphans(within(t)); got != nil {
		t.Errorf("to be taken over are %v", got)
	}
	for _, agent := range []string{"later-1", "later-2", "later-3"} {
		if !b.Judged(agent) {
			t.Errorf("what was said of %s is asked for again and again", agent)
		}
	}
	want := []string{"a message of the mirror has format 3, and this program reads 2: upgrade it", "what a machine says of an agent has format 2, and this program reads 1: upgrade it"}
	if got := slices.Sorted(slices.Values(b.later.Warnings())); !slices.Equal(got, want) {
		t.Errorf("warnings: %q", got)
	}
}

// saidLater is how a message says something of an agent in a later format.
const saidLater = `"about":{"format":2,`

// subject is where the files of an agent are.
func subject(agent string) string {
	return "nexus.farm.files." + base64.RawURLEncoding.EncodeToString([]byte(agent))
}

// lastSaid is the head of the last message of an agent.
func lastSaid(t *testing.T, m *clustertest.Machine, agent string) (string, error) {
	name, err := m.JetStream.StreamNameBySubject(within(t), subject(agent))
	if err != nil {
		return "", err
	}
	stream, err := m.JetStream.Stream(within(t), name)
	if err != nil {
		return "", err
	}
	last, err := stream.GetLastMsgForSubject(within(t), subject(agent))
	if err != nil {
		return "", err
	}
	head, _, _ := strings.Cut(string(last.Data), "\n")
	return head, nil
}

// Without a majority no prompt is accepted and no outcome told; with one, it is. A server that ends does not wait.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	a := start(t, farm[0], t.TempDir(), shared)
	a.claim("worker")
	r := a.open("worker", true)
	a.turn(r, "worker", "one")
	if err := r.Accept("two", [32]byte{}); err != nil {
		t.Fatal(err)
	}
	farm[1].Stop()
	farm[2].Stop()
	a.ForgetAgreement() // as a second later
	unnamed := make(chan error, 1)
	go func() { unnamed <- r.AcceptUnnamed("without a name", [32]byte{}) }()
	if err := r.Accept("three", [32]byte{}); !errors.Is(err, supervisor.ErrNoMajority) {
		t.Errorf("a prompt: %v", err)
	}
	if err := <-unnamed; !errors.Is(err, supervisor.ErrNoMajority) {
		t.Errorf("a prompt without a name: %v", err)
	}
	r.End(supervisor.Result{TurnID: "two", Outcome: supervisor.Completed})
	settled := make(chan error, 1)
	go func() { settled <- r.Settle() }() // which is waited for
	select {
	case err := <-settled:
		t.Errorf("an outcome that no majority has is told: %v", err)
		settled <- nil
	case <-time.After(time.Second):
	}
	farm[1].Start()
	if err := <-settled; err != nil {
		t.Errorf("with a majority again: %v", err)
	}
	if err := r.Accept("three", [32]byte{}); err != nil {
		t.Errorf("a prompt that was refused, once more: %v", err)
	}
	farm[1].Stop()
	r.End(supervisor.Result{TurnID: "three", Outcome: supervisor.Completed})
	a.Hurry()
	if err := r.Settle(); !errors.Is(err, supervisor.ErrNoMajority) {
		t.Errorf("at the end of the server: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
