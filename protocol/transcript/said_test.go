package transcript_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// What was said is the same whatever else a session says, whatever its name, and however it is read; a line without an end is nothing yet.
func TestSaid(t *testing.T) {
	session := func(name string, records ...transcript.Record) []byte {
		t.Helper()
		var text []byte
		for _, r := range append([]transcript.Record{transcript.Header{Version: transcript.Version, SessionID: "s", Name: name, CreatedAt: at}}, records...) {
			line, err := transcript.Append(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, line...), '\n')
		}
		return text
	}
	said := func(text string) transcript.Record {
		return transcript.Message{Message: protocol.Message{Role: protocol.RoleUser, Content: text, At: at}}
	}
	long := strings.Repeat("x", 200<<10)
	first := session("one", said("a"), said(long))
	more := session("two", said("a"), transcript.Settings{At: at}, said(long), transcript.Partial{TurnID: "1", Text: "b"})
	a, err := transcript.Said(bytes.NewReader(first))
	if err != nil || len(a) != 2 {
		t.Fatalf("%d, %v", len(a), err)
	}
	b, err := transcript.Said(iotest.HalfReader(bytes.NewReader(more)))
	if err != nil || len(b) != 3 || !slices.Equal(a, b[:2]) {
		t.Errorf("of what goes on: %d, %v", len(b), err)
	}
	if torn, err := transcript.Said(bytes.NewReader(more[:len(more)-1])); err != nil || len(torn) != 2 {
		t.Errorf("of a torn line: %d, %v", len(torn), err)
	}
	other, err := transcript.Said(bytes.NewReader(session("one", said("a"), said(long+"y"))))
	if err != nil || other[0] != a[0] || other[1] == a[1] {
		t.Errorf("of other words: %v", err)
	}
}
