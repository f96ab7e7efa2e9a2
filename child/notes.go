package child

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/prompt"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// Bounds of what update_context tells the agent (SPEC §4.8).
const (
	maxNotes     = 64
	maxNote      = 64 << 10  // bytes of the data of one note, and of one file
	maxNoteBytes = 256 << 10 // bytes of the data of all, and of all files in one turn
	maxNoteKey   = 1 << 10   // bytes
)

// noteNames are the members that name what a note is about: the first that there
// is.
var noteNames = map[string][]string{
	"file":       {"path", "name", "key"},
	"dependency": {"name", "path", "key"},
	"state":      {"key", "name", "path"},
}

// updateContext holds for the turns to come.
func (s *server) updateContext(c protocol.UpdateContext) (answer protocol.UpdateContextAnswer, err error) {
	note, err := newNote(c)
	notes := slices.Clone(s.session.current().notes)
	if err == nil {
		notes, err = applyNote(notes, note, c.Action)
	}
	if err == nil {
		err = s.session.save(note)
	}
	if err != nil {
		return answer, fmt.Errorf("update_context: %w", err)
	}
	s.session.setNotes(notes)
	return protocol.UpdateContextAnswer{Notes: uint64(len(notes))}, nil
}

// newNote checks a command and makes what is saved of it.
func newNote(c protocol.UpdateContext) (transcript.Note, error) {
	names, ok := noteNames[c.ContextType]
	if !ok {
		return transcript.Note{}, fmt.Errorf("context_type %.64q is not known, want file, dependency or state", c.ContextType)
	}
	members, err := noteMembers(c.Data)
	if err != nil {
		return transcript.Note{}, fmt.Errorf("data: %w", err)
	}
	name := ""
	for _, member := range names {
		if name = text(members[member]); name != "" {
			break
		}
	}
	switch {
	case name == "":
		return transcript.Note{}, fmt.Errorf("data has no string %q that says what it is about", names[0])
	case len(name) > maxNoteKey:
		return transcript.Note{}, fmt.Errorf("the name of what it is about is longer than %d bytes", maxNoteKey)
	case len(c.Data) > maxNote:
		return transcript.Note{}, fmt.Errorf("data has %d bytes, at most %d are taken", len(c.Data), maxNote)
	}
	note := transcript.Note{Key: c.ContextType + ":" + name, At: time.Now().UTC()}
	if c.Action != "remove" {
		note.Data = c.Data.Clone()
		if err := note.Data.Compact(); err != nil {
			return transcript.Note{}, fmt.Errorf("data: %w", err)
		}
	}
	return note, nil
}

// applyNote puts a note among the others, or takes it from them. A note that is
// there keeps its place.
func applyNote(notes []transcript.Note, note transcript.Note, action string) ([]transcript.Note, error) {
	i := slices.IndexFunc(notes, func(n transcript.Note) bool { return n.Key == note.Key })
	switch action {
	case "add", "modify", "remove":
	default:
		return nil, fmt.Errorf("action %.64q is not known, want add, modify or remove", action)
	}
	switch {
	case i < 0 && action != "add":
		return nil, fmt.Errorf("there is no %q to %s", note.Key, action)
	case action == "remove":
		return slices.Delete(notes, i, i+1), nil
	case i < 0 && len(notes) >= maxNotes:
		return nil, fmt.Errorf("there are %d notes already; remove some", maxNotes)
	case i < 0:
		notes = append(notes, note)
	default:
		notes[i] = note
	}
	size := 0
	for _, n := range notes {
		size += len(n.Data)
	}
	if size > maxNoteBytes {
		return nil, fmt.Errorf("all notes together would have %d bytes, at most %d are taken; remove some", size, maxNoteBytes)
	}
	return notes, nil
}

func noteMembers(data jsontext.Value) (map[string]jsontext.Value, error) {
	if data.Kind() != '{' {
		return nil, errors.New("is not an object")
	}
	var members map[string]jsontext.Value
	return members, json.Unmarshal(data, &members)
}

func text(value jsontext.Value) (s string) {
	if value.Kind() != '"' || json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// surroundings are where the agent works, without notes.
func (s *session) surroundings() prompt.Surroundings {
	return prompt.Surroundings{Cwd: s.ToolEnv.Cwd(), Now: time.Now(), Walls: s.ToolEnv.Walls()}
}

// system is the system prompt of a turn that begins now. Files that notes name
// are read as they are.
func (w *worker) system() string {
	around := w.surroundings()
	room := maxNoteBytes
	now := w.current()
	for _, n := range now.notes {
		around.Notes = append(around.Notes, w.files.note(n, &room))
	}
	if len(around.Notes) > 0 {
		return now.prompt.With(around)
	}
	key := systemKey{now.prompt.Text, now.prompt.Explicit, around.Cwd, around.Walls, around.Now.YearDay()}
	if w.lastSystem.systemKey != key {
		w.lastSystem = madeSystem{key, now.prompt.With(around)}
	}
	return w.lastSystem.text
}

// madeSystem is the system prompt of the last turn, without notes: the next turn mostly has
// the same.
type madeSystem struct {
	systemKey
	text string
}

// systemKey is what a system prompt without notes is made of.
type systemKey struct {
	prompt     string
	explicit   bool
	cwd, walls string
	day        int
}

// note is a note as the model reads it. It takes what a file needs from room.
func (files agentFiles) note(n transcript.Note, room *int) prompt.Note {
	kind, name, _ := strings.Cut(n.Key, ":")
	note := prompt.Note{Title: kind + " " + strings.Join(strings.Fields(name), " "), Text: string(n.Data)}
	if kind != "file" {
		return note
	}
	members, err := noteMembers(n.Data)
	if err != nil {
		return note
	}
	body, given := text(members["content"]), members["content"].Kind() == '"'
	if !given {
		body = files.noteFile(name, room)
	}
	for _, shown := range []string{"content", "path", "name", "key"} {
		if shown == "content" && given || text(members[shown]) == name {
			delete(members, shown)
		}
	}
	if len(members) > 0 {
		if rest, err := json.Marshal(members, json.Deterministic(true)); err == nil {
			body = string(rest) + "\n\n" + body
		}
	}
	note.Text = body
	return note
}

// noteFile is what a file holds, or why that is not shown.
func (files agentFiles) noteFile(name string, room *int) string {
	f, err := files.open(name)
	if err != nil {
		return fmt.Sprintf("[it cannot be shown: %v]", err)
	}
	defer f.Close()
	head, err := f.head(min(maxNote, *room))
	switch {
	case err != nil:
		return fmt.Sprintf("[it cannot be shown: %v]", err)
	case !isText(head):
		return "[it cannot be shown: is not UTF-8 text]"
	case head == "" && f.size > 0:
		return fmt.Sprintf("[it cannot be shown: it has %d bytes, and the files before it take all the room]", f.size)
	}
	*room -= len(head)
	if int64(len(head)) < f.size {
		head += fmt.Sprintf("\n[%d of %d bytes left out]", f.size-int64(len(head)), f.size)
	}
	return head
}
