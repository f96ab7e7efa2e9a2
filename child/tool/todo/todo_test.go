package todo_test

import (
	"errors"
	"strings"
	"testing"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/todo"
	"nexus.internal/protocol/transcript"
)

// journal keeps the last note, unless it fails.
type journal struct {
	note transcript.Note
	err  error
}

func (j *journal) Commit(records ...transcript.Record) error {
	if j.err == nil {
		j.note = records[0].(transcript.Note)
	}
	return j.err
}

func call(t *testing.T, l *todo.List, input string) (string, error) {
	t.Helper()
	result, err := l.Run(t.Context(), tool.Call{Input: []byte(input)})
	return result.Text, err
}

func TestList(t *testing.T) {
	j := &journal{}
	l := todo.New(todo.Options{Journal: j})
	for _, tt := range []struct{ input, want string }{
		{`{}`, "[the list is empty]\n"},
		{`{"items":[{"text":"a","status":"pending"},{"text":"b","status":"done"}]}`, "1. [pending] a\n2. [done] b\n"},
		{`{}`, "1. [pending] a\n2. [done] b\n"},
		{`{"items":null}`, "1. [pending] a\n2. [done] b\n"},
		{`{"items":[{"text":"b","status":"in_progress"}]}`, "1. [in_progress] b\n"},
	} {
		if got, err := call(t, l, tt.input); got != tt.want || err != nil {
			t.Errorf("%s: got %q, %v", tt.input, got, err)
		}
	}
	if got := todo.New(todo.Options{Saved: j.note.Data}).String(); got != l.String() || j.note.Key != todo.Key {
		t.Errorf("saved is %q as %s", got, j.note.Key)
	}
	j.err = errors.New("the disk is full")
	if _, err := call(t, l, `{"items":[]}`); err == nil || l.String() != "1. [in_progress] b\n" {
		t.Errorf("not saved: %v, and the list is %q", err, l.String())
	}
	j.err = nil
	if got, err := call(t, l, `{"items":[]}`); err != nil || got != "[the list is empty]\n" || j.note.Data != nil {
		t.Errorf("emptied: %q, %v, saved %s", got, err, j.note.Data)
	}
	for _, saved := range []string{"", "x", `{}`, `[{"text":"","status":"done"}]`, `[{"text":"a","status":"other"}]`} {
		if got := todo.New(todo.Options{Saved: []byte(saved)}).Items(); len(got) > 0 {
			t.Errorf("%q is the list %v", saved, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	l := todo.New(todo.Options{})
	if _, err := call(t, l, `{"items":[{"text":"kept","status":"pending"}]}`); err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]string{
		`{"items":[{"text":" ","status":"done"}]}`:                                                             `"items[0].text" is empty`,
		`{"items":[{"text":"a","status":"pending"},{"text":"a\nb","status":"done"}]}`:                          `"items[1].text" is more than one line`,
		`{"items":[{"text":"` + strings.Repeat("x", 301) + `","status":"done"}]}`:                              `"items[0].text" has 301 bytes`,
		`{"items":[{"text":"a","status":"doing"}]}`:                                                            `"items[0].status" is "doing"`,
		`{"items":[{"text":"a"}]}`:                                                                             `status`,
		`{"items":[` + strings.Repeat(`{"text":"a","status":"done"},`, 100) + `{"text":"a","status":"done"}]}`: `"items" has 101 entries`,
		`{"items":[],"more":1}`:                                                                                `more`,
		`{"items":"a"}`:                                                                                        `items`,
	} {
		if _, err := call(t, l, input); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %s", input, err, want)
		}
	}
	if got := l.String(); got != "1. [pending] kept\n" {
		t.Errorf("the list is %q", got)
	}
}
