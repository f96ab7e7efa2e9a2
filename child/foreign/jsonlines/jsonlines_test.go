package jsonlines_test

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"nexus.internal/child/foreign/jsonlines"
	"nexus.internal/protocol/strict"
)

// FuzzDecode takes any line for an object or for none, and leaves the line as it is.
func FuzzDecode(f *testing.F) {
	for _, line := range []string{`{"type":"result"}`, `[]`, `npm notice`, ``, `{"text":"\ud83d"}`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":1} x`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		object, ok := jsonlines.Decode(line)
		if !bytes.Equal(line, before) {
			t.Fatal("the line was changed")
		}
		if ok && (!utf8.ValidString(object.Raw) || strict.Valid([]byte(object.Raw)) != nil || !object.IsObject()) {
			t.Errorf("object %q", object.Raw)
		}
	})
}
