package transcript_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// The history ends with the conversation, but for its summary; and it has all messages that were not undone.
func TestHistory(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		data := encode(t, every[0])
		state := parsed(t, data)
		writer := state.Writer()
		var said []string // since the last reset
		undone := false
		for n := range 1 + r.IntN(60) {
			record := anyRecord(r, state, n)
			var err error
			if data, err = writer.Append(data, record); err != nil {
				t.Fatal(err)
			}
			data = append(data, '\n')
			if err := state.Apply(record); err != nil {
				t.Fatal(err)
			}
			switch record := record.(type) {
			case transcript.Message:
				said = append(said, record.Message.Content)
			case transcript.Undo:
				undone = true
			case transcript.Reset:
				said, undone = nil, false
			default:
			}
		}
		torn := append(slices.Clone(data), `{"type":"message","mess`...)
		history, err := transcript.ReadHistory(bytes.NewReader(torn), int64(len(torn)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var all []string
		var messages []protocol.Message
		for n := range history.Len() {
			m, err := history.Message(n)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			all, messages = append(all, m.Content), append(messages, m)
		}
		if diff := cmp.Diff(said, all); !undone && diff != "" {
			t.Fatalf("seed %d: (-said +read)\n%s", seed, diff)
		}
		conversation := state.Messages
		if from := len(conversation) - len(messages); from > 0 {
			conversation = conversation[from:]
		}
		for len(conversation) > 0 && conversation[0].TurnID == "" && conversation[0].Role == protocol.RoleUser { // a summary
			conversation = conversation[1:]
		}
		if diff := cmp.Diff(conversation, messages[len(messages)-len(conversation):], cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seed %d: (-conversation +end of the history)\n%s", seed, diff)
		}
	}
}

func TestHistoryOfDamage(t *testing.T) {
	for _, tail := range []string{`{"type":"undo","kept":7,"at":"2026-01-02T03:04:05Z"}`, `{"type":"reset"`, "rubbish"} {
		data := append(encode(t, every[0]), tail+"\n"...)
		if _, err := transcript.ReadHistory(bytes.NewReader(data), int64(len(data))); err == nil {
			t.Errorf("%s is read", tail)
		}
	}
}
