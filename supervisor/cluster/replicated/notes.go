package replicated

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/safefile"
)

// note says whose the files of an agent on this machine's disk are.
type note struct {
	// Epoch is that of the claim under which they are shipped; 0 without a note.
	Epoch uint64 `json:"epoch"`
	// Files is what they looked like when all was shipped; "" if that was not so since.
	Files string `json:"files,omitzero"`
	// From is the machine from which the agent was taken over, until it is started; "" for none. Left says that the machine
	// had ended.
	From string `json:"from,omitzero"`
	Left bool   `json:"left,omitzero"`
	// Leaves says that the files are about to get another name, and are none of this one's then; until the agent is opened.
	Leaves bool `json:"leaves,omitzero"`
}

// shipped is the note of an agent whose files look like that and are shipped at an epoch.
func (n note) shipped(epoch uint64, files string) note {
	n.Epoch, n.Files = epoch, files
	return n
}

// maxNote bounds one, in bytes.
const maxNote = 64 << 10

// notes are those of all agents, each in a file. It is safe for concurrent use.
type notes struct {
	dir string

	mu sync.Mutex // guards of, and is not held while the disk is waited for
	of map[string]note
}

func encoded(agent string) string { return base64.RawURLEncoding.EncodeToString([]byte(agent)) }

// read reads them all.
func (n *notes) read() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of = map[string]note{}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	entries, err := safefile.ReadDir(n.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name, err := base64.RawURLEncoding.DecodeString(entry.Name())
		if err != nil {
			continue // one that was being written
		}
		text, err := safefile.Read(filepath.Join(n.dir, entry.Name()), maxNote)
		if err != nil {
			return err
		}
		var one note
		if err := format.Note.Decode(text, &one); err != nil {
			return fmt.Errorf("the note %s: %w", entry.Name(), err)
		}
		n.of[string(name)] = one
	}
	return nil
}

func (n *notes) get(agent string) note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[agent]
}

func (n *notes) all() map[string]note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.of)
}

// write is durable. One agent's is written by one goroutine at a time, which waits for the disk with those of others.
func (n *notes) write(agent string, one note) error {
	if n.get(agent) == one {
		return nil
	}
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	if err := safefile.Replace(filepath.Join(n.dir, encoded(agent)), text, true); err != nil {
		return fmt.Errorf("note whose the files of %s are: %w", agent, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[agent] = one
	return nil
}

func (n *notes) remove(agent string) error {
	if err := os.Remove(filepath.Join(n.dir, encoded(agent))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, agent)
	return nil
}

// look says what the files of an agent look like: other ones, or changed ones, look otherwise. It is "" if there are none.
func look(dir, agent string) (string, error) {
	var all strings.Builder
	for _, path := range paths(agent) {
		err := filepath.WalkDir(filepath.Join(dir, path), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				fmt.Fprintf(&all, "%s %v %d %d\n", path, safefile.Identify(info), info.Size(), info.ModTime().UnixNano())
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	if all.Len() == 0 {
		return "", nil
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(all.String()))), nil
}
