package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/safefile"
)

// settings are what is said of this machine while it runs, and holds when it is started again.
type settings struct {
	Draining bool `json:"draining,omitzero"`
	// Labels are those that were changed, by name; null is none.
	Labels map[string]*string `json:"labels,omitempty"`
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
		err = format.Settings.Decode(text, &s)
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
	return n.keep(func(s *settings) error {
		s.Draining = on
		return nil
	})
}

// Label gives this machine labels, and takes others from it, and returns all that it has. They are right and hold as [Node.Drain] does, over those of
// Options. ErrLabels says that there would be too many; then nothing has changed.
func (n *Node) Label(set map[string]string, remove []string) (all map[string]string, err error) {
	err = n.keep(func(s *settings) error {
		s.Labels = maps.Clone(s.Labels)
		if s.Labels == nil {
			s.Labels = map[string]*string{}
		}
		for label, value := range set {
			s.Labels[label] = &value
		}
		for _, label := range remove {
			delete(s.Labels, label)
			if _, given := n.o.Labels[label]; given {
				s.Labels[label] = nil
			}
		}
		all = s.over(n.o.Labels)
		return checkCount(all)
	})
	return all, err
}

// over are labels as they were changed.
func (s settings) over(labels map[string]string) map[string]string {
	all := maps.Clone(labels)
	if all == nil {
		all = map[string]string{}
	}
	for label, value := range s.Labels {
		if value == nil {
			delete(all, label)
		} else {
			all[label] = *value
		}
	}
	return all
}

// keep changes what is said of this machine, on the disk first, and tells the others.
func (n *Node) keep(to func(*settings) error) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	n.mu.Lock()
	before := n.kept
	n.mu.Unlock()
	now := before
	if err := to(&now); err != nil || reflect.DeepEqual(now, before) {
		return err
	}
	if err := now.write(n.o.File); err != nil {
		return err
	}
	n.mu.Lock()
	n.kept = now
	n.mu.Unlock()
	_ = n.say(n.self(Up)) // in a second it is said again
	return nil
}
