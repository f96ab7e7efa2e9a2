package child

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/child/prompt"
	"nexus.internal/protocol"
	"nexus.internal/protocol/notes"
	"nexus.internal/protocol/transcript"
)

// maxNotedFile bounds what is shown of one file that a note names, in bytes.
const maxNotedFile = 64 << 10

// updateContext holds for the turns to come.
func (s *server) updateContext(c protocol.UpdateContext) (answer protocol.UpdateContextAnswer, err error) {
	note, err := notes.New(c.Action, c.ContextType, c.Data)
	all := slices.Clone(s.session.current().notes)
	if err == nil {
		all, err = notes.Apply(all, note, c.Action)
	}
	if err == nil {
		err = s.session.save(note)
	}
	if err != nil {
		return answer, fmt.Errorf("update_context: %w", err)
	}
	s.session.setNotes(all)
	return protocol.UpdateContextAnswer{Notes: uint64(len(all))}, nil
}

func (s *server) getNotes(protocol.GetNotes) protocol.Notes {
	return notes.List(s.session.current().notes)
}

// surroundings are where the agent works, without notes.
func (s *session) surroundings() prompt.Surroundings {
	return prompt.Surroundings{Cwd: s.ToolEnv.Cwd(), Now: time.Now(), Walls: s.ToolEnv.Walls()}
}

// system is the system prompt of a turn that begins now. Files that notes name
// are read as they are.
func (w *worker) system() string {
	around := w.surroundings()
	room := notes.MaxBytes
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
	members, err := notes.Members(n.Data)
	if err != nil {
		return note
	}
	body, given := notes.Text(members["content"]), members["content"].Kind() == '"'
	if !given {
		body = files.noteFile(name, room)
	}
	for _, shown := range []string{"content", "path", "name", "key"} {
		if shown == "content" && given || notes.Text(members[shown]) == name {
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
	head, err := f.head(min(maxNotedFile, *room))
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
