package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol/safefile"
)

// settings are what is said of this machine while it runs, and holds when it is started again.
type settings struct {
	Draining bool `json:"draining,omitzero"`
}

// maxSettings bounds their file, in bytes.
const maxSettings = 64 << 10

func readSettings(path string) (s settings, err error) {
	if path == "" {
		return s, nil
	}
	text, err := safefile.Read(path, maxSettings)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err == nil:
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read what was said of this machine in %s: %w", path, err)
	}
	return s, nil
}

// write is durable.
func (s settings) write(path string) error {
	if path == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = safefile.Replace(path, text, true)
	}
	if err != nil {
		return fmt.Errorf("keep what is said of this machine: %w", err)
	}
	return nil
}

// Draining reports whether this machine is to have no agents.
func (n *Node) Draining() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kept.Draining
}

// Drain says whether this machine is to have no agents, until it is said otherwise, also after a restart. It is on the disk when Drain returns; the others
// are told at once. That they do not hear it is no error: they are told again each second.
func (n *Node) Drain(on bool) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	n.mu.Lock()
	now := n.kept
	n.mu.Unlock()
	if now.Draining == on {
		return nil
	}
	now.Draining = on
	if err := now.write(n.o.File); err != nil {
		return err
	}
	n.mu.Lock()
	n.kept = now
	n.mu.Unlock()
	_ = n.say(n.self(Up)) // in a second it is said again
	return nil
}
