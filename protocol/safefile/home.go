package safefile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// links is what becomes of a symbolic link in the place of something that nexus trusts.
type links int

const (
	followed links = iota // to what must be trusted as well
	ignored               // Open follows no link
	refused
)

// trusted is what nexus trusts in a home.
var trusted = []struct {
	links links
	names []string
}{
	{followed, []string{"config.json", "mcp.json", "NEXUS.md", "sessions", "plans", "logs", "cache"}},
	{refused, []string{"run", "run/temp", "run/sockets", "run/scratch", "run/trees"}},
	{ignored, []string{"keys.json", "audit.jsonl", "run/lock", "run/config.json", "run/last", "run/signatures"}},
}

// CheckHome refuses a home that belongs to another user than ours and root, or that others may
// write, and one with such a file or directory among those that nexus trusts: its
// configuration, its keys and its own directories. It refuses run, and the directories in
// it, where they are symbolic links. The error says how to mend it. What is missing, or
// cannot be looked at, is no error: nothing is read there.
func CheckHome(home string) error {
	if err := CheckHomeDir(home); err != nil {
		return err
	}
	if err := check(home, followed); err != nil {
		return err
	}
	for _, t := range trusted {
		for _, name := range t.names {
			if err := check(filepath.Join(home, filepath.FromSlash(name)), t.links); err != nil {
				return err
			}
		}
	}
	entries, _ := os.ReadDir(home) // as above
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".key" {
			continue
		}
		if err := check(filepath.Join(home, e.Name()), ignored); err != nil {
			return err
		}
	}
	return nil
}

// CheckHomeDir refuses a home that is something else than a directory. One that is missing,
// or cannot be looked at, is no error.
func CheckHomeDir(home string) error {
	if info, err := os.Stat(home); err == nil && !info.IsDir() {
		return fmt.Errorf("home %s is not a directory", home)
	}
	return nil
}

// check is CheckHome for one file or directory.
func check(path string, l links) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		switch {
		case l == ignored:
			return nil
		case l == refused:
			return fmt.Errorf("%s is a symbolic link, and must be a directory of the home itself: remove the link", path)
		case !OursOrRoots(info):
			return foreign(path)
		}
		info, err = os.Stat(path)
	}
	switch {
	case err != nil:
		return nil //nolint:nilerr // whoever reads it says why it cannot be
	case !OursOrRoots(info):
		return foreign(path)
	case !OwnerWrites(info):
		return fmt.Errorf("%s has mode %04o, so others may change what nexus trusts: look whether they have, then run chmod go-w %s",
			path, info.Mode().Perm(), path)
	}
	return nil
}

func foreign(path string) error {
	return fmt.Errorf("%s is another user's, who could run programs as you: choose another home (--home, NEXUS_HOME), "+
		"or make it yours (chown -R %d %s) if you trust all that is in it", path, os.Geteuid(), path)
}
