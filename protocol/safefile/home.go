package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DefaultHome is the name, in the user's home directory, of the home of nexus if nobody says
// otherwise.
const DefaultHome = ".nexus3"

// HomeOf is the home by environ (KEY=VALUE) alone. No symbolic
// link leads to it; it may itself be one.
func HomeOf(environ []string) (string, error) {
	env := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	if home := env["NEXUS_HOME"]; home != "" {
		abs, err := filepath.Abs(home)
		if err != nil {
			return "", fmt.Errorf("resolve NEXUS_HOME: %w", err)
		}
		return ThroughNoLink(abs), nil
	}
	if home := env["HOME"]; home != "" {
		return ThroughNoLink(filepath.Join(home, DefaultHome)), nil
	}
	return "", errors.New("neither NEXUS_HOME nor HOME is set")
}

// Below makes path relative to dir; false if it is neither dir nor lies in it. Both are absolute
// and clean, and no link is followed.
func Below(dir, path string) (relative string, ok bool) {
	relative, err := filepath.Rel(dir, path)
	return relative, err == nil && filepath.IsLocal(relative)
}

// ThroughNoLink is a path whose directories are no symbolic links, as far as they are
// there; its last element may be one.
func ThroughNoLink(path string) string {
	rest := filepath.Base(path)
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

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
	{followed, []string{"config.json", "mcp.json", "NEXUS.md", "sessions", "plans", "logs", "cache", "cluster"}},
	{refused, []string{"run", "run/temp", "run/sockets", "run/scratch", "run/trees"}},
	{ignored, []string{"format.json", "keys.json", "context.json", "audit.jsonl", "audit-limited.jsonl", "audit-excess.jsonl", "run/lock", "run/config.json", "run/last", "run/signatures"}},
}

// CheckHome refuses a home that belongs to another user than ours and root, or that others may
// write, and one with such a file or directory among those that nexus trusts: its
// configuration, its keys and its own directories. It refuses run, and the directories in
// it, where they are symbolic links, and any of the others where it is a link to what is not there. The error says how to mend it. What is missing, or
// cannot be looked at, is no error: nothing is read there.
func CheckHome(home string) error {
	if err := CheckHomeDir(home); err != nil {
		return err
	}
	if info, err := os.Stat(home); err == nil && !OursOrRoots(info) {
		return foreign(home, AsOwner(info)+", ")
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

// CheckHomeDir refuses a home that is something else than a directory, or that our user may not
// enter. One that is missing is no error.
func CheckHomeDir(home string) error {
	info, err := os.Stat(home)
	if err != nil {
		return nil //nolint:nilerr // whoever needs it says why it cannot be had
	}
	if !info.IsDir() {
		return fmt.Errorf("home %s is not a directory", home)
	}
	if _, err := os.Lstat(filepath.Join(home, "run")); errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("home %s (mode %04o) is not open to user %d: choose another home (--home, NEXUS_HOME), or change its owner or mode",
			home, info.Mode().Perm(), os.Geteuid())
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
			return foreign(path, "")
		}
		if err := CheckLink(path); err != nil {
			return err
		}
		info, err = os.Stat(path)
	}
	switch {
	case err != nil:
		return nil //nolint:nilerr // whoever reads it says why it cannot be
	case !OursOrRoots(info):
		return foreign(path, "")
	case !OwnerWrites(info):
		return fmt.Errorf("%s has mode %04o, so others may change what nexus trusts: look whether they have, then run chmod go-w %s",
			path, info.Mode().Perm(), path)
	}
	return nil
}

// CheckLink refuses a link to what is not there: whoever made it meant something by it, and the disk may not be mounted. What is no link is no error.
func CheckLink(path string) error {
	to, err := os.Readlink(path)
	if err != nil {
		return nil //nolint:nilerr // it is no link
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is a symbolic link to %s, which is not there: mend the link, or remove it", path, to)
	}
	return nil
}

// foreign refuses another user's file. way is one more way out, with a comma behind it.
func foreign(path, way string) error {
	return fmt.Errorf("%s is another user's, who could run programs as you: %schoose another home (--home, NEXUS_HOME), "+
		"or make it yours (chown -R %d %s) if you trust all that is in it", path, way, os.Geteuid(), path)
}
