package accepted_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"nexus.internal/fixtures"
	"nexus.internal/protocol/format"
	"nexus.internal/supervisor/cluster/accepted"
	"nexus.internal/supervisor/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Verify(m) }

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// open opens the lists by a machine, once the machines agree.
func open(t *testing.T, m *clustertest.Machine) *accepted.Bucket {
	t.Helper()
	whole := within(t)
	for {
		ctx, cancel := context.WithTimeout(whole, 2*time.Second)
		b, err := accepted.Open(ctx, m.JetStream, "farm", 3)
		cancel()
		if err == nil {
			return b
		}
		if whole.Err() != nil {
			t.Fatal(err)
		}
	}
}

func take(t *testing.T, b *accepted.Bucket, epoch uint64, fresh bool) (*accepted.List, string) {
	t.Helper()
	l, before, err := b.Take(within(t), "worker", epoch, fresh)
	if err != nil {
		t.Fatal(err)
	}
	return l, ids(before)
}

func ids(prompts []accepted.Prompt) string {
	var all []string
	for _, p := range prompts {
		all = append(all, p.ID)
	}
	return strings.Join(all, " ")
}

func accept(t *testing.T, l *accepted.List, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := l.Accept(within(t), accepted.Prompt{ID: id, SHA256: "00ff"}); err != nil {
			t.Fatal(err)
		}
	}
}

// The next owner has what the one before had accepted and not shipped, and that one's are refused from then on.
func TestOwners(t *testing.T) {
	t.Parallel()
	farm := clustertest.Start(t, 3)
	a, b := open(t, farm[0]), open(t, farm[1])
	first, before := take(t, a, 3, true)
	if before != "" {
		t.Errorf("a new agent has %s", before)
	}
	accept(t, first, "one", "two")
	mark := first.Mark()
	accept(t, first, "three")
	first.Shipped(mark)
	accept(t, first, "four")
	next, before := take(t, b, 8, false)
	if before != "three four" {
		t.Errorf("the next owner finds %q", before)
	}
	if err := first.Accept(within(t), accepted.Prompt{ID: "five"}); !errors.Is(err, accepted.ErrFenced) {
		t.Errorf("the earlier owner accepts: %v", err)
	}
	if _, _, err := a.Take(within(t), "worker", 3, false); !errors.Is(err, accepted.ErrFenced) {
		t.Errorf("the earlier owner takes the list: %v", err)
	}
	accept(t, next, "six")
	if _, before = take(t, a, 9, false); before != "three four six" {
		t.Errorf("what the next owner had not shipped either: %q", before)
	}
	if _, before = take(t, b, 10, true); before != "" {
		t.Errorf("another agent of the name has %q", before)
	}
	if err := b.Forget(within(t), "worker"); err != nil {
		t.Error(err)
	}
	if _, before = take(t, a, 2, false); before != "" {
		t.Errorf("after the agent was removed: %q", before)
	}
}

// Nobody answers for the lists until the machines that keep them have begun to: they are waited for.
func TestNobodyAnswersYet(t *testing.T) {
	t.Parallel()
	m := clustertest.Start(t, 3)[0]
	b := open(t, m)
	if err := m.JetStream.DeleteKeyValue(within(t), "nexus_farm_accepted"); err != nil {
		t.Fatal(err)
	}
	took := make(chan error, 1)
	go func() { // which is waited for
		_, _, err := b.Take(within(t), "worker", 3, false)
		took <- err
	}()
	select {
	case err := <-took:
		t.Errorf("nobody answers, and it says: %v", err)
		return
	case <-time.After(500 * time.Millisecond):
	}
	open(t, m)
	if err := <-took; err != nil {
		t.Error(err)
	}
}

// A list has an end; what is shipped makes room.
func TestLongList(t *testing.T) {
	t.Parallel()
	b := open(t, clustertest.Start(t, 3)[0])
	l, _ := take(t, b, 1, true)
	var all []string
	for i := range accepted.MaxPrompts {
		all = append(all, fmt.Sprint(i))
	}
	accept(t, l, all...)
	if err := l.Accept(within(t), accepted.Prompt{ID: "more"}); !errors.Is(err, accepted.ErrLong) {
		t.Errorf("one more: %v", err)
	}
	l.Shipped(l.Mark())
	accept(t, l, "more")
	if _, before := take(t, b, 2, false); before != "more" {
		t.Errorf("on the list are %s", before)
	}
}

// A list is kept as it was recorded. One of a later format stays, and is not taken.
func TestRecordedList(t *testing.T) {
	t.Parallel()
	m := clustertest.Start(t, 3)[0]
	b := open(t, m)
	l, _ := take(t, b, 7, true)
	accept(t, l, "r-1")
	bucket, err := m.JetStream.KeyValue(within(t), "nexus_farm_accepted")
	if err != nil {
		t.Fatal(err)
	}
	key := base64.RawURLEncoding.EncodeToString([]byte("worker"))
	isKept := func(want string) {
		t.Helper()
		whole := within(t)
		for { // the machine that is asked may know it a moment later
			entry, err := bucket.Get(whole, key)
			if err == nil && string(entry.Value()) == want {
				return
			}
			if err != nil || whole.Err() != nil {
				t.Fatalf("it is not kept as %s: %v; if another form is meant, it is another format", want, err)
			}
		}
	}
	isKept(string(fixtures.Read(t, "cluster/accepted-1.json")))
	const later = `{"format":2,"epoch":"seven"}`
	if _, err := bucket.Put(within(t), key, []byte(later)); err != nil {
		t.Fatal(err)
	}
	isKept(later)
	_, _, err = b.Take(within(t), "worker", 9, false)
	if e, ok := errors.AsType[*format.LaterError](err); !ok || !strings.Contains(e.Error(), "has format 2, and this program reads 1: upgrade it") {
		t.Errorf("of a later format: %v", err)
	}
	isKept(later)
}

// What one server alone keeps, its end takes: the list is not opened.
func TestAlone(t *testing.T) {
	t.Parallel()
	m := clustertest.Start(t, 2)[0]
	var err error
	for range 20 {
		ctx, cancel := context.WithTimeout(within(t), 2*time.Second)
		_, err = accepted.Open(ctx, m.JetStream, "alone", 1)
		cancel()
		if errors.Is(err, accepted.ErrAlone) {
			return
		}
	}
	t.Errorf("opened on one server: %v", err)
}
