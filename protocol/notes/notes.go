// Package notes has the rules of what update_context tells agents beside their conversations
// (SPEC §4.8), and the file in a home with what each conversation that begins is told:
//
//	note, err := notes.New("add", "state", jsontext.Value(`{"key":"branch","value":"main"}`))
//	all, err := notes.Apply(all, note, "add")
//	all, err := notes.OpenFile(home).Read()
package notes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// Bounds of the notes of one conversation.
const (
	Max      = 64
	MaxSize  = 64 << 10  // bytes of the data of one note
	MaxBytes = 256 << 10 // bytes of the data of all
	maxName  = 1 << 10   // bytes
)

// names are the members that name what a note is about, by the kind of the note: the first
// that there is.
var names = map[string][]string{
	"file":       {"path", "name", "key"},
	"dependency": {"name", "path", "key"},
	"state":      {"key", "name", "path"},
}

// New makes the note of an update_context, which has no data if the action is remove.
func New(action, contextType string, data jsontext.Value) (transcript.Note, error) {
	members, ok := names[contextType]
	if !ok {
		return transcript.Note{}, fmt.Errorf("context_type %.64q is not known, want file, dependency or state", contextType)
	}
	given, err := Members(data)
	if err != nil {
		return transcript.Note{}, fmt.Errorf("data: %w", err)
	}
	name := ""
	for _, member := range members {
		if name = Text(given[member]); name != "" {
			break
		}
	}
	switch {
	case name == "":
		return transcript.Note{}, fmt.Errorf("data has no string %q that says what it is about", members[0])
	case len(name) > maxName:
		return transcript.Note{}, fmt.Errorf("the name of what it is about is longer than %d bytes", maxName)
	case len(data) > MaxSize:
		return transcript.Note{}, fmt.Errorf("data has %d bytes, at most %d are taken", len(data), MaxSize)
	}
	note := transcript.Note{Key: contextType + ":" + name, At: time.Now().UTC()}
	if action != "remove" {
		note.Data = data.Clone()
		if err := note.Data.Compact(); err != nil {
			return transcript.Note{}, fmt.Errorf("data: %w", err)
		}
	}
	return note, nil
}

// Apply puts a note among others, or takes it from them, and changes all. A note that is there
// keeps its place.
func Apply(all []transcript.Note, note transcript.Note, action string) ([]transcript.Note, error) {
	i := index(all, note.Key)
	switch action {
	case "add", "modify", "remove":
	default:
		return nil, fmt.Errorf("action %.64q is not known, want add, modify or remove", action)
	}
	switch {
	case i < 0 && action != "add":
		return nil, fmt.Errorf("there is no %q to %s", note.Key, action)
	case action == "remove":
		return slices.Delete(all, i, i+1), nil
	case i < 0:
		all = append(all, note)
	default:
		all[i] = note
	}
	return all, check(all)
}

// BoundError says that there is no room for a note.
type BoundError struct{ problem string }

func (e *BoundError) Error() string { return e.problem }

// check checks the bounds of all notes together.
func check(all []transcript.Note) error {
	if len(all) > Max {
		return &BoundError{fmt.Sprintf("there are %d notes already; remove some", Max)}
	}
	size := 0
	for _, n := range all {
		size += len(n.Data)
	}
	if size > MaxBytes {
		return &BoundError{fmt.Sprintf("all notes together would have %d bytes, at most %d are taken; remove some", size, MaxBytes)}
	}
	return nil
}

// List describes notes to a client.
func List(all []transcript.Note) protocol.Notes {
	list := protocol.Notes{Notes: make([]protocol.Note, len(all))}
	for i, n := range all {
		kind, name, _ := strings.Cut(n.Key, ":")
		list.Notes[i] = protocol.Note{ContextType: kind, Name: name, Data: n.Data, UpdatedAt: n.At}
	}
	return list
}

// AppendRecords appends notes to the records of a session.
func AppendRecords(records []transcript.Record, all []transcript.Note) []transcript.Record {
	for _, n := range all {
		records = append(records, n)
	}
	return records
}

func index(all []transcript.Note, key string) int {
	return slices.IndexFunc(all, func(n transcript.Note) bool { return n.Key == key })
}

// Members are those of the data of a note.
func Members(data jsontext.Value) (map[string]jsontext.Value, error) {
	if data.Kind() != '{' {
		return nil, errors.New("is not an object")
	}
	var members map[string]jsontext.Value
	return members, json.Unmarshal(data, &members)
}

// Text is a member that is a string; "" for any other.
func Text(value jsontext.Value) (s string) {
	if value.Kind() != '"' || json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}
