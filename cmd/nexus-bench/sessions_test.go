package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/bridge/sessions"
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
		state, _, err := transcript.Parse(bytes.NewReader(data))
		if err != nil || len(state.Messages) != n || state.Repair(state.LastActionAt) != nil {
			t.Errorf("got %d messages, %v, want %d and no turn open", len(state.Messages), err, n)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// What was compacted has all messages in its file and the last in its conversation.
func TestCompacted(t *testing.T) {
	b := &bench{dir: t.TempDir()}
	if err := b.compacted("s", 20+3*compactEvery); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(b.dir, "s.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	state, _, err := transcript.Parse(bytes.NewReader(data))
	if n := bytes.Count(data, []byte(`{"type":"message",`)); err != nil || n != 20+3*compactEvery || len(state.Messages) != 1+4+compactEvery {
		t.Errorf("%d messages, %d of them in the conversation, %v", n, len(state.Messages), err)
	}
}

// What is listed is what it is said to be: long conversations first.
func TestFill(t *testing.T) {
	b, home := &bench{dir: t.TempDir()}, t.TempDir()
	if err := b.fill(filepath.Join(home, "sessions"), pageSessions+2); err != nil {
		t.Fatal(err)
	}
	page, total, err := sessions.New(home, nil).List(pageSessions-1, 2, false)
	if err != nil || total != pageSessions+2 || len(page) != 2 || page[0].Messages != crashMessages || page[1].Messages != 2 {
		t.Errorf("%d in all, %+v, %v", total, page, err)
	}
}
