package replicated_test

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/supervisor/cluster/clustertest"
)

// objects are the names of what the object store has, sorted.
func objects(t *testing.T, nats *clustertest.Machine) (store jetstream.ObjectStore, names []string) {
	t.Helper()
	store, err := nats.JetStream.ObjectStore(within(t), "nexus_farm_objects")
	if err != nil {
		t.Fatal(err)
	}
	all, err := store.List(within(t))
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		t.Fatal(err)
	}
	for _, info := range all {
		names = append(names, info.Name)
	}
	slices.Sort(names)
	return store, names
}

// A large result is in the object store, and a machine that takes the agent over has it, without writing it a second time. It is gone with the agent; what nobody's is, is swept.
func TestLargeResult(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	a := start(t, farm[0], t.TempDir(), shared+"/work")
	b := start(t, farm[1], t.TempDir(), shared+"/work")
	until(t, "each machine hears the other", func() bool { return len(a.node.Machines()) == 2 && len(b.node.Machines()) == 2 })
	result := strings.Repeat("a long result ", 100_000)
	a.claim("worker")
	r := a.open("worker", true)
	a.turn(r, "worker", "one")
	a.says("worker", result)
	a.turn(r, "worker", "two")
	want := a.said("worker")
	_, before := objects(t, farm[0])
	if len(before) == 0 {
		t.Error("the object store has nothing")
	}
	a.node.Close() // it is not heard of any more
	b.takes("worker")
	if got := b.said("worker"); got != want || !strings.Contains(got, result) {
		t.Errorf("it has said %d bytes, want %d", len(got), len(want))
	}
	r = b.open("worker", false)
	b.turn(r, "worker", "three")
	store, after := objects(t, farm[1])
	if !slices.Equal(before, after) {
		t.Errorf("after the takeover there are the objects %q, and were %q", after, before)
	}
	unclaimed := map[string]bool{}
	nobody := base64.RawURLEncoding.EncodeToString([]byte("nobody"))
	for _, name := range []string{nobody + ".1.A", nobody + ".2.B", strings.Split(after[0], ".")[0] + ".1.C"} {
		if _, err := store.PutString(within(t), name, "left behind"); err != nil {
			t.Fatal(err)
		}
	}
	for _, left := range []int{len(after) + 2, len(after)} { // what nobody has is swept the second time
		if err := b.SweepObjects(within(t), unclaimed); err != nil {
			t.Fatal(err)
		}
		if _, names := objects(t, farm[1]); len(names) != left {
			t.Errorf("after a sweep there are %q, want %d", names, left)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Forget(within(t), "worker"); err != nil {
		t.Error(err)
	}
	if _, names := objects(t, farm[1]); len(names) != 0 {
		t.Errorf("of an agent that is no more there are the objects %q", names)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.SweepObjects(ctx, unclaimed); err == nil {
		t.Error("a sweep that is broken off says nothing of it")
	}
}
