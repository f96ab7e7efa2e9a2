package register_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"

	"go.uber.org/zap"

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
	later := format.NewLater(zap.NewNop())
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
	entry, err := bucket.Get(t.Context(), key)
	if want := fixtures.Read(t, "cluster/held-1.txt"); err != nil || string(entry.Value()) != string(want) {
		t.Errorf("it is kept as %s, want %s, %v; if that is meant, it is another format", entry.Value(), want, err)
	}
	if got, err := r.Take(t.Context(), "plan/run", "b"); got != "a" || err != nil || len(later.Warnings()) != 0 {
		t.Errorf("what was recorded is read as %q, %v", got, err)
	}

	const text = `{"machine":"a","format":2}`
	revision, err := bucket.Put(t.Context(), key, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Take(t.Context(), "plan/run", "a"); got != cluster.Unreadable || err != nil {
		t.Errorf("it is taken for %q, %v", got, err)
	}
	if got, err := r.Holder(t.Context(), "plan/run"); got != cluster.Unreadable || err != nil {
		t.Errorf("%q has it, %v", got, err)
	}
	for _, holder := range []string{"a", text, cluster.Unreadable} {
		if err := r.Drop(t.Context(), "plan/run", holder); err != nil {
			t.Error(err)
		}
	}
	if entry, err := bucket.Get(t.Context(), key); err != nil || entry.Revision() != revision || string(entry.Value()) != text {
		t.Errorf("it became %v, %v", entry, err)
	}
	want := []string{"the holder of a name has format 2, and this program reads 1: upgrade it"}
	if got := later.Warnings(); !slices.Equal(got, want) {
		t.Errorf("warnings: %q", got)
	}
}
