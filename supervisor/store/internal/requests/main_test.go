package requests_test

import (
	"crypto/sha256"
	"os"
	"testing"

	"go.uber.org/goleak"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/requests"
)

func TestMain(m *testing.M) {
	if play := os.Getenv("REQUESTS_PLAY"); play != "" {
		os.Exit(perform(play))
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, path string, o requests.Options) *requests.Log {
	t.Helper()
	l, err := requests.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// record is what a log tells of the past.
type record struct {
	id     string
	digest [sha256.Size]byte
	ended  *supervisor.Result
}

func past(l *requests.Log) (all []record) {
	l.Past(func(id string, digest [sha256.Size]byte, ended *supervisor.Result) {
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
