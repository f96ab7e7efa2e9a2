package replicated_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/replicated"
	"nexus.internal/supervisor/store"
)

// over are records of which something was written over, as they say.
type over struct {
	supervisor.Records
	times uint64
}

func (o *over) Overwritten() uint64 { return o.times }

// overs are a store of these.
type overs struct {
	*store.Local
	last *over
}

func (s *overs) Open(agent string, fresh bool) (supervisor.Records, error) {
	r, err := s.Local.Open(agent, fresh)
	s.last = &over{Records: r}
	return s.last, err
}

// What was written over in the records, as it is on a full disk, is with the others when an outcome is told.
func TestWrittenOver(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	home := t.TempDir()
	local := &overs{Local: store.NewLocal(store.Options{Layout: store.Layout{Named: filepath.Join(home, "sessions"), Temp: filepath.Join(home, "temp")}})}
	defer local.Close()
	node, err := cluster.Join(farm[0].NATS(), cluster.Options{Cluster: "farm", Machine: "a", Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	a := &machine{t: t, nats: farm[0], node: node, home: home}
	a.Store = replicated.New(replicated.Options{Local: local, Root: a.path(""), Dir: filepath.Join(home, "cluster"), Dirs: where{a, shared}})
	defer a.Close()
	if err := errors.Join(a.Start(node), node.Agreed(within(t))); err != nil {
		t.Fatal(err)
	}
	a.claim("worker")
	r := a.open("worker", true)
	for range 60 {
		r.Append(supervisor.Event{Seq: r.Last() + 1, Type: "note", Data: []byte(`{"type":"note","text":"` + strings.Repeat("0123456789", 100) + `"}`)})
	}
	a.turn(r, "worker", "one")
	path := filepath.Join("worker.records", "00000000000000000001.jsonl")
	f, err := os.OpenFile(a.path(path), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("OVER"), 20<<10); err != nil {
		t.Fatal(err)
	}
	local.last.times++
	if err := errors.Join(f.Close(), r.Settle()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if there, err := a.SaveOne(within(t), "worker", dir, filepath.Join(home, "scratch")); err != nil || !there {
		t.Fatal(there, err)
	}
	want, err := os.ReadFile(a.path(path))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || !bytes.Equal(got, want) || !bytes.Contains(got, []byte("OVER")) {
		t.Errorf("%d bytes are shipped, want %d: %v", len(got), len(want), err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// An agent that has just come is bound by nothing as long as its files are not here, which say where it works.
func TestTakersOfWhatHasJustCome(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	a := startSharing(t, farm[0], t.TempDir(), shared, shared)
	b := startSharing(t, farm[1], t.TempDir(), "", shared)
	a.claim("worker")
	r := a.open("worker", true)
	a.turn(r, "worker", "one")
	if err := errors.Join(r.Close(), a.HandOver(within(t), "worker", "b")); err != nil {
		t.Fatal(err)
	}
	until(t, "b has it", func() bool { c, _ := b.node.Owner("worker"); return c.Machine == "b" })
	if takers, why := b.Takers("worker"); takers != nil || why != "" && why != "where it works is not known" { // they may just have come
		t.Errorf("before its files are there: %v, %q", takers, why)
	}
	if err := b.Prepare(within(t), "worker"); err != nil {
		t.Fatal(err)
	}
	if takers, why := b.Takers("worker"); takers != nil || why != "where it works is not known" {
		t.Errorf("once they are: %v, %q", takers, why)
	}
}
