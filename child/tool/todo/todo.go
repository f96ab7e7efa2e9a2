// Package todo is the tool by which an agent keeps a list of things to do.
//
//	list := todo.New(todo.Options{Journal: journal, Saved: note.Data})
//	result, err := list.Run(ctx, tool.Call{Input: jsontext.Value(`{"items":[{"text":"test it","status":"pending"}]}`)})
//	text := list.String() // for what a model sees after a compaction
//
// A call replaces the whole list, or shows it. The list is saved before a call is answered, as a
// note of the session (child/AGENT.md §4.6), and so is there after a compaction, a restart and a
// kill. It is bounded. A List is safe for concurrent use and starts no goroutine; a nil one is
// empty.
package todo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/transcript"
)

// Key is that of the note in which a session has the list. Notes of update_context have others.
const Key = "todo"

const (
	maxItems = 100
	maxText  = 300 // bytes of one item
)

// Journal saves records of the session, on the disk or not at all. It is safe for concurrent
// use.
type Journal interface {
	Commit(records ...transcript.Record) error
}

// Options is what a List begins with.
type Options struct {
	// Journal saves the list; nil saves nothing.
	Journal Journal
	// Saved is the data of the session's note; nil for an empty list. What cannot be read is
	// no list.
	Saved jsontext.Value
}

// List is the list and the tool todo {items?}.
type List struct {
	journal Journal

	mu    sync.Mutex          // guards all below
	items []protocol.TodoItem // replaced, never changed in place
}

// New makes a list of what was saved.
func New(o Options) *List {
	l := &List{journal: o.Journal}
	var items []protocol.TodoItem
	if o.Saved != nil && json.Unmarshal(o.Saved, &items) == nil && check(items) == nil {
		l.items = items
	}
	return l
}

var spec = tool.Spec{
	Name: "todo",
	Description: "Keep a list of things to do, for work of several steps: replace the whole list, or show it. " +
		"It is there after a restart and when what was said before is summarised. Have one item in_progress, and say done as soon as it is.",
	InputSchema: jsontext.Value(fmt.Sprintf(`{"type":"object","properties":{`+
		`"items":{"type":"array","maxItems":%d,"description":"the new list, all of it; without items the list is shown",`+
		`"items":{"type":"object","properties":{`+
		`"text":{"type":"string","minLength":1,"maxLength":%d},`+
		`"status":{"type":"string","enum":["pending","in_progress","done"]}},`+
		`"required":["text","status"],"additionalProperties":false}}},"additionalProperties":false}`, maxItems, maxText)),
}

// Spec implements [tool.Tool].
func (*List) Spec() tool.Spec { return spec }

// Scope implements [tool.Scoped]: the list touches nothing.
func (*List) Scope(jsontext.Value) (tool.Scope, error) {
	return tool.Scope{Action: protocol.ActionNone, Summary: "keep the list of things to do"}, nil
}

// Run implements [tool.Tool].
func (l *List) Run(_ context.Context, c tool.Call) (tool.Result, error) {
	var in struct {
		Items *[]protocol.TodoItem `json:"items"`
	}
	if err := strict.Unmarshal(c.Input, &in, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	if in.Items != nil {
		if err := l.replace(*in.Items); err != nil {
			return tool.Result{}, err
		}
	}
	if text := l.String(); text != "" {
		return tool.Result{Text: text}, nil
	}
	return tool.Result{Text: "[the list is empty]\n"}, nil
}

func (l *List) replace(items []protocol.TodoItem) error {
	if err := check(items); err != nil {
		return err
	}
	data, err := json.Marshal(items)
	if err != nil {
		return err
	}
	note := transcript.Note{Key: Key, At: time.Now().UTC()}
	if len(items) > 0 {
		note.Data = data
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.journal != nil {
		if err := l.journal.Commit(note); err != nil {
			return fmt.Errorf("the list stays as it was: %w", err)
		}
	}
	l.items = items
	return nil
}

// check says which item cannot be one. The error is a *strict.Error.
func check(items []protocol.TodoItem) error {
	if len(items) > maxItems {
		return &strict.Error{Path: "items", Problem: fmt.Sprintf("has %d entries, at most %d are taken", len(items), maxItems)}
	}
	for i, item := range items {
		problem := func(member, format string, args ...any) error {
			return &strict.Error{Path: fmt.Sprintf("items[%d].%s", i, member), Problem: fmt.Sprintf(format, args...)}
		}
		switch {
		case strings.TrimSpace(item.Text) == "":
			return problem("text", "is empty")
		case len(item.Text) > maxText:
			return problem("text", "has %d bytes, at most %d are taken", len(item.Text), maxText)
		case strings.ContainsFunc(item.Text, unicode.IsControl):
			return problem("text", "is more than one line, or has control characters")
		case !slices.Contains([]string{"pending", "in_progress", "done"}, item.Status):
			return problem("status", "is %.64q, want pending, in_progress or done", item.Status)
		}
	}
	return nil
}

// Items are those of the list. They must not be changed.
func (l *List) Items() []protocol.TodoItem {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.items
}

// String is the list for a model, one line an item; "" if it is empty.
func (l *List) String() string {
	var text strings.Builder
	for i, item := range l.Items() {
		fmt.Fprintf(&text, "%d. [%s] %s\n", i+1, item.Status, item.Text)
	}
	return text.String()
}

// Forget empties the list of a session that has ended, without saving that.
func (l *List) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = nil
}

// Split takes the list's note out of those of a session: the others are update_context's.
func Split(notes []transcript.Note) (saved jsontext.Value, others []transcript.Note) {
	for _, n := range notes {
		if n.Key == Key {
			saved = n.Data
		} else {
			others = append(others, n)
		}
	}
	return saved, others
}
