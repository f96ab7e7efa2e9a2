package store_test

import (
	"fmt"
	"strings"
	"testing"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
)

// BenchmarkTurn records a prompt, its events and its outcome.
func BenchmarkTurn(b *testing.B) {
	kept := store.NewLocal(options(b.TempDir()))
	defer kept.Close()
	r, err := kept.Open("a", true)
	if err != nil {
		b.Fatal(err)
	}
	text, n := strings.Repeat("x", 200), uint64(0)
	data := fmt.Appendf(nil, `{"type":"message_update","text":%q}`, text)
	b.ReportAllocs()
	for b.Loop() {
		id := fmt.Sprint("0b0e9ad1-3ab4-4a5f-9cfe-", n)
		if err := r.Accept(id, [32]byte{}); err != nil {
			b.Fatal(err)
		}
		for range 6 {
			n++
			r.Append(supervisor.Event{Seq: n, Type: "message_update", Data: data})
		}
		r.End(supervisor.Result{TurnID: id, Outcome: supervisor.Completed, Text: text})
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
}
