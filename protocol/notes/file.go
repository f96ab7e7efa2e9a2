package notes

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/transcript"
)

// FileName is the name of a File in its home.
const FileName = "context.json"

// MaxFile bounds a File, in bytes: the data of all notes, with their names and times.
const MaxFile = MaxBytes + Max*(2*maxName+128)

// File has the notes that each conversation begins with, in a home. It is safe for concurrent
// use; one process alone may change it.
type File struct {
	path string
	mu   sync.Mutex // held while it is changed
}

// kept is what a File holds, as JSON.
type kept struct {
	Notes []transcript.Note `json:"notes"`
}

// OpenFile names the File of a home, which is made by the first Change.
func OpenFile(home string) *File { return &File{path: filepath.Join(home, FileName)} }

// Told is what a File has; see [File.Read]. Without a home there is none.
func Told(home string) ([]transcript.Note, error) {
	if home == "" {
		return nil, nil
	}
	return OpenFile(home).Read()
}

// Read returns the notes of a File; none where there is no file. The error names the file, and says
// how to go on without it.
func (f *File) Read() ([]transcript.Note, error) {
	data, err := safefile.Read(f.path, MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all kept
	if err == nil {
		err = strict.Unmarshal(data, &all, strict.IgnoreUnknown)
	}
	if err == nil {
		err = check(all.Notes)
	}
	if err != nil {
		return nil, fmt.Errorf("what update_context told all agents, %s (without it, they are told nothing): %w", f.path, err)
	}
	return all.Notes, nil
}

// Change does what [Apply] says and keeps the result on the disk. changed is false where there is
// no note to modify or to remove, which is no error: agents may have one of their own.
func (f *File) Change(note transcript.Note, action string) (count int, changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, err := f.Read()
	if err != nil {
		return 0, false, err
	}
	if action != "add" && index(was, note.Key) < 0 {
		return len(was), false, nil
	}
	now, err := Apply(slices.Clone(was), note, action)
	if err != nil {
		return len(was), false, err
	}
	data, err := json.Marshal(kept{now})
	if err != nil {
		return len(was), false, err
	}
	if err := safefile.Replace(f.path, data, true); err != nil {
		return len(was), false, fmt.Errorf("keep what update_context told: %w", err)
	}
	return len(now), true, nil
}
