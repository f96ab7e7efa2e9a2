package notes_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/notes"
)

// Whatever a note says, it is refused or has a bounded name that tells its type,
// and an object as its data.
func FuzzNote(f *testing.F) {
	f.Add("file", `{"path":"a.go","content":"package a"}`)
	f.Add("dependency", `{"name":"","path":"x"}`)
	f.Add("state", `{"key":"\ud83d\ude00","value":[1,{"key":2}]}`)
	f.Add("state", `[]`)
	f.Fuzz(func(t *testing.T, kind, data string) {
		if !jsontext.Value(data).IsValid() {
			return // the frame was refused
		}
		note, err := notes.New("add", kind, jsontext.Value(data))
		if err != nil {
			return
		}
		name, ok := strings.CutPrefix(note.Key, kind+":")
		if !ok || name == "" || len(name) > 1<<10 {
			t.Errorf("the key is %q", note.Key)
		}
		if note.Data.Kind() != '{' || !note.Data.IsValid() || len(note.Data) > 64<<10 {
			t.Errorf("the data is %.100q", note.Data)
		}
	})
}
