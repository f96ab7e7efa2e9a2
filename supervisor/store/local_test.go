package store_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
	"nexus.internal/supervisor/store/storetest"
)

func options(dir string) store.Options {
	return store.Options{Layout: store.Layout{Named: dir, Temp: dir}, NoSync: true}
}

func open(dir string) store.Store { return store.NewLocal(options(dir)) }

// small is a store whose segments are begun every few dozen turns.
func small(dir string) store.Store { return store.NewSmall(options(dir)) }

func TestMain(m *testing.M) { storetest.Main(m, small, plays) }

func TestLocal(t *testing.T) { storetest.Run(t, small) }

// records opens those of the agent a, for another server than that of earlier ones. They are closed at the
// end of the test.
func records(t testing.TB, dir string, earlier ...supervisor.Records) supervisor.Records {
	t.Helper()
	for _, r := range earlier {
		must(t, r.Close())
	}
	s := open(dir)
	r, err := s.Open("a", false)
	must(t, err)
	t.Cleanup(func() {
		r.Close()
		s.Close()
	})
	return r
}

// segment is the path of a segment of the agent a.
func segment(dir string, number int) string {
	return filepath.Join(dir, "a.records", fmt.Sprintf("%020d.jsonl", number))
}

// record is what records tell of the past.
type record struct {
	id     string
	digest [sha256.Size]byte
	ended  *supervisor.Result
}

func past(r supervisor.Records) (all []record) {
	r.Past(func(id string, digest [sha256.Size]byte, ended *supervisor.Result) {
		all = append(all, record{id, digest, ended})
	})
	return all
}

func sum(s string) [sha256.Size]byte { return sha256.Sum256([]byte(s)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func completed(id, text string) supervisor.Result {
	return supervisor.Result{TurnID: id, Outcome: supervisor.Completed, Text: text, Incarnation: 1}
}

// note is an event with about size bytes.
func note(seq uint64, size int) supervisor.Event {
	return supervisor.Event{Seq: seq, Type: "note", Data: fmt.Appendf(nil, `{"type":"note","n":%d,"fill":"%s"}`, seq, strings.Repeat("x", size))}
}

// numbers are those of the events of the agent a above a number.
func numbers(t testing.TB, s store.Store, after uint64) (all []uint64) {
	t.Helper()
	for e, err := range s.Events("a", after) {
		must(t, err)
		if e.Type != "note" || !strings.HasPrefix(string(e.Data), fmt.Sprintf(`{"type":"note","n":%d,`, e.Seq)) {
			t.Errorf("event %d is %.80s", e.Seq, e.Data)
		}
		all = append(all, e.Seq)
	}
	return all
}

// isDamaged reports whether an error says that limits may be lost.
func isDamaged(err error) bool {
	_, ok := errors.AsType[*store.DamagedError](err)
	return ok
}
