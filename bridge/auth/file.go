package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"nexus.internal/protocol/safefile"
)

// DefaultPort is the port whose key file has no number in its name.
const DefaultPort = 8765

// KeyPath is the key file of the server at port: HOME/server.key for
// DefaultPort, HOME/server-PORT.key for any other.
func KeyPath(home string, port int) string {
	if port == DefaultPort {
		return filepath.Join(home, "server.key")
	}
	return filepath.Join(home, "server-"+strconv.Itoa(port)+".key")
}

// Create makes a new key and puts it at path, in place of an older one, in one
// step: a reader sees the old key or the new one, whole, but on a full disk, where the
// new key is written over the old one. The file is 0600 and
// holds the key alone. The directory is made 0700 if it is missing and tightened
// to that if others may enter it; a shared one (sticky, like /tmp) is refused.
func Create(path string) (Key, error) {
	key := Generate()
	return key, key.write(path)
}

// write puts the key into the file at path. On a full disk it writes it over the key
// that stands there, if there is one.
func (k Key) write(path string) error {
	err := replace(path, k.Reveal()+"\n")
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if err == nil || full && k.overwrite(path) == nil {
		return nil
	}
	return fmt.Errorf("write key file %s: %w", path, err)
}

// overwrite takes no room, as both keys are of one length. A reader may see a part of
// each meanwhile, which is no key.
func (k Key) overwrite(path string) error {
	before, err := Read(path)
	if err != nil {
		return err
	}
	if len(before.Reveal()) != len(k.Reveal()) {
		return ErrMalformed
	}
	f, err := safefile.Open(path, os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(k.Reveal()), 0)
	return errors.Join(err, f.Sync(), f.Close())
}

// replace puts text at path in one step, for its owner alone.
func replace(path, text string) error {
	dir := filepath.Dir(path)
	if err := tighten(dir); err != nil {
		return err
	}
	return safefile.Replace(path, []byte(text), true)
}

// keyFile is the name of a key file, whatever its port.
var keyFile = regexp.MustCompile(`^server(-[0-9]{1,5})?\.key$`)

// removeOthers removes the key files beside the one at path.
func removeOthers(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	for _, entry := range entries {
		if keyFile.MatchString(entry.Name()) && entry.Name() != filepath.Base(path) && !entry.IsDir() {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(path), entry.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("remove key files of other servers: %w", err)
	}
	return nil
}

func tighten(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case info.Mode().Perm()&0o077 == 0:
		return nil
	case info.Mode()&fs.ModeSticky != 0:
		return fmt.Errorf("directory %s is shared with others; choose one of your own", dir)
	}
	return os.Chmod(dir, 0o700)
}

// Read reads the key at path. It refuses a file that anybody but its owner may
// read or write, one of another user than ours and root, one that is no plain file, and
// one that holds no key.
func Read(path string) (Key, error) {
	key, err := read(path, ownersAlone)
	if err != nil {
		return Key{}, fmt.Errorf("read key file %s: %w", path, err)
	}
	return key, nil
}

// fileMode is the permissions that a key file may have.
type fileMode bool

const (
	ownersAlone fileMode = false
	anyMode     fileMode = true
)

func read(path string, mode fileMode) (Key, error) {
	text, err := readOwn(path, mode, maxKeyText+2)
	if err != nil {
		return Key{}, err
	}
	return Parse(string(text))
}

// readOwn reads at most limit bytes of a file that has the mode.
func readOwn(path string, mode fileMode, limit int64) ([]byte, error) {
	f, err := safefile.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case mode == ownersAlone && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("its mode is %04o, so others may use it: run chmod 600 %s",
			info.Mode().Perm(), path)
	case mode == ownersAlone && !safefile.OursOrRoots(info):
		return nil, errors.New("it is another user's, who may know the key or have put it there: " + safefile.AsOwner(info))
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// checkHome refuses a directory that others may put key files into.
func checkHome(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !safefile.OwnerWrites(info):
		return fmt.Errorf("directory %s has mode %04o, so others may put key files there: run chmod 700 %s", dir, info.Mode().Perm(), dir)
	case !safefile.OursOrRoots(info):
		return fmt.Errorf("directory %s is another user's, who may have put the key file there: %s", dir, safefile.AsOwner(info))
	}
	return nil
}

// Remove removes the file at path if it still holds key, whatever its mode is
// by now; another server may have put its own there since.
func Remove(path string, key Key) error {
	switch found, err := read(path, anyMode); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, ErrMalformed): // not ours any more
		return nil
	case err != nil:
		return fmt.Errorf("remove key file %s: %w", path, err)
	case !key.Matches(found.Reveal()):
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove key file: %w", err)
	}
	return nil
}

// Lookup is where a client may find its key.
type Lookup struct {
	Flag string // as given on the command line: a key, or @ and a file that holds one; "" if it was not
	Env  string // as found in the environment; "" if it was not
	Home string // whose key files are read; "" for none
	Port int
}

// ErrNoKey says that no key was found.
var ErrNoKey = errors.New("no API key found")

// Discover finds a client's key: the flag, the environment, the key file of
// the port, then HOME/server.key. The first that is there counts, also if it
// cannot be used: the error then says why, as where others may put files into Home.
// source names the place for people.
// A caller makes sure, before it sends the key, that a nexus server listens there
// (client.Detect).
func Discover(l Lookup) (key Key, source string, err error) {
	if l.Flag == "@" {
		return Key{}, "command line", errors.New("@ names no file: want @FILE")
	}
	if path, ok := strings.CutPrefix(l.Flag, "@"); ok {
		key, err = Read(path)
		return key, path, err
	}
	if l.Flag != "" {
		key, err = Parse(l.Flag)
		return key, "command line", err
	}
	if l.Env != "" {
		key, err = Parse(l.Env)
		return key, "environment", err
	}
	if l.Home == "" {
		return Key{}, "", fmt.Errorf("%w: no --api-key, no environment variable; the key files of a home are of its own server, at http://127.0.0.1:PORT", ErrNoKey)
	}
	for _, path := range []string{KeyPath(l.Home, l.Port), KeyPath(l.Home, DefaultPort)} {
		key, err = Read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = checkHome(l.Home)
		}
		if err != nil {
			return Key{}, path, err
		}
		return key, path, nil
	}
	return Key{}, "", fmt.Errorf("%w: no --api-key, no environment variable, no file %s", ErrNoKey, KeyPath(l.Home, l.Port))
}
