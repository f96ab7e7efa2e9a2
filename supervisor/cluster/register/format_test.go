package register_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"

	"nexus.internal/fixtures"
	"nexus.internal/protocol/format"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/register"
)

// The holder of a name is kept as it was recorded. One of a later format has the name, and nobody else gets it or gives it up.
func TestRecordedHolder(t *testing.T) {
	t.Parallel()
	m := clustertest.Start(t, 2)[0]
	later := format.NewLater(nil)
	r, err := register.Open(m.NATS(), register.Options{Cluster: "farm", Replicas: 1, Later: later})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	until(t, r, "there is no value", has(r, "keys", ""))
	if got, err := r.Take(t.Context(), "plan/run", "a"); got != "a" || err != nil {
		t.Fatal(got, err)
	}
	bucket, err := m.JetStream.KeyValue(t.Context(), "nexus_farm_held")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("plan/run"))
	key := hex.EncodeToString(sum[:])
	isKept := func(want string) (revision uint64) { // which the machine that is asked may know a moment later
		t.Helper()
		eventually(t, "it is kept as "+want+"; if another form is meant, it is another format", func() bool {
			entry, err := bucket.Get(t.Context(), key)
			if err != nil || string(entry.Value()) != want {
				return false
			}
			revision = entry.Revision()
			return true
		})
		return revision
	}
	isKept(string(fixtures.Read(t, "cluster/held-1.txt")))
	if got, err := r.Take(t.Context(), "plan/run", "b"); got != "a" || err != nil || len(later.Warnings()) != 0 {
		t.Errorf("what was recorded is read as %q, %v", got, err)
	}

	const text = `{"machine":"a","format":2}`
	revision, err := bucket.Put(t.Context(), key, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "another machine has it, as who takes it learns", func() bool {
		got, err := r.Take(t.Context(), "plan/run", "a")
		return got == cluster.Unreadable && err == nil
	})
	eventually(t, "another machine has it", func() bool {
		got, err := r.Holder(t.Context(), "plan/run")
		return got == cluster.Unreadable && err == nil
	})
	for _, holder := range []string{"a", text, cluster.Unreadable} {
		if err := r.Drop(t.Context(), "plan/run", holder); err != nil {
			t.Error(err)
		}
	}
	if now := isKept(text); now != revision {
		t.Error("it was changed")
	}
	want := []string{"the holder of a name has format 2, and this program reads 1: upgrade it"}
	if got := later.Warnings(); !slices.Equal(got, want) {
		t.Errorf("warnings: %q", got)
	}
}
