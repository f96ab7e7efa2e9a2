package main

import (
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/protocol/transcript"
)

// What is restored is what it is said to be.
func TestSession(t *testing.T) {
	b := &bench{dir: t.TempDir()}
	for _, n := range []int{2, crashMessages} {
		if err := b.session("s", n); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(b.dir, "s.jsonl")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		state, _, err := transcript.Parse(data)
		if err != nil || len(state.Messages) != n || state.Repair(state.LastActionAt) != nil {
			t.Errorf("got %d messages, %v, want %d and no turn open", len(state.Messages), err, n)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
