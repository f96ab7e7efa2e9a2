package members_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"nexus.internal/supervisor/cluster/clustertest"
)

// A list of removed machines of a later format stays as it is: who was removed before still is, nobody else is removed, and a machine that is told of its removal in it
// goes on.
func TestLaterRemoved(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	a, b := joins(t, farm[0], time.Now()), joins(t, farm[1], time.Now())
	a.knows(t, "a up, b up", 3)
	b.knows(t, "a up, b up", 3)
	bucket, err := farm[0].JetStream.KeyValue(t.Context(), "nexus_farm_register")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.Put(t.Context(), "removed", []byte(`{"gone":"2026-01-02T03:04:05Z"}`)); err != nil {
		t.Fatal(err)
	}
	until(t, "it is known who was removed", func() error {
		if !a.members.Removed("gone") {
			return errNotYet
		}
		return nil
	})
	const later = `{"format":2,"a":"2999-01-02T03:04:05Z"}`
	revision, err := bucket.Put(t.Context(), "removed", []byte(later))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"the list of removed machines has format 2, and this program reads 1: upgrade it"}
	until(t, "it was met", func() error {
		if !slices.Equal(a.later.Warnings(), want) {
			return errNotYet
		}
		return nil
	})
	if _, err := a.remove(t, "c", true); err == nil || !strings.Contains(err.Error(), want[0]) {
		t.Errorf("another machine is removed: %v", err)
	}
	answer := a.members.Answer([]byte(strings.Replace(later, "2", "3", 1)))
	if met := a.later.Warnings(); answer != nil || len(met) != 2 || !strings.Contains(met[1], "has format 3") {
		t.Errorf("the machine answers %s, and has met %q", answer, met)
	}
	select {
	case <-a.members.Out():
		t.Error("it is out")
	default:
	}
	if !a.members.Removed("gone") || a.members.Removed("a") {
		t.Error("what was known is not known any more")
	}
	until(t, "the list is as it was", func() error {
		entry, err := bucket.Get(t.Context(), "removed")
		if err == nil && (entry.Revision() != revision || string(entry.Value()) != later) {
			err = errNotYet
		}
		return err
	})
}
