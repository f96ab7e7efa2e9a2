//go:build unix

package safefile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/safefile"
)

// things are what somebody could put in a file's place, and whether each leads to a
// regular file.
var things = map[string]struct {
	put    func(path string) error
	linked bool
}{
	"link": {func(path string) error { return os.Symlink(filepath.Base(path)+".victim", path) }, true},
	"link to pipe": {func(path string) error {
		return errors.Join(unix.Mkfifo(path+".pipe", 0o600), os.Symlink(path+".pipe", path))
	}, false},
	"link to device": {func(path string) error { return os.Symlink("/dev/zero", path) }, false},
	"pipe":           {func(path string) error { return unix.Mkfifo(path, 0o600) }, false},
	"socket":         {func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }, false},
	"directory":      {func(path string) error { return os.Mkdir(path, 0o700) }, false},
}

func TestOpenRefusesWhatIsNotRegular(t *testing.T) {
	for name, thing := range things {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			if err := errors.Join(thing.put(path), os.WriteFile(path+".victim", []byte("victim"), 0o600)); err != nil {
				t.Fatal(err)
			}
			for _, flags := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_APPEND} {
				f, err := safefile.Open(path, flags)
				if !errors.Is(err, safefile.ErrNotRegular) || strings.HasPrefix(name, "link") != strings.HasSuffix(err.Error(), "symbolic link") {
					t.Errorf("open with %#x: %v, %v", flags, f, err)
				}
			}
			if data, err := safefile.Read(path, 100); !errors.Is(err, safefile.ErrNotRegular) {
				t.Errorf("read: %q, %v", data, err)
			}
			data, err := safefile.ReadLinked(path, 100)
			if thing.linked && string(data) != "victim" || !thing.linked && !errors.Is(err, safefile.ErrNotRegular) {
				t.Errorf("read through links: %q, %v", data, err)
			}
			data, err = safefile.ReadNamed(path, 100)
			if thing.linked && string(data) != "victim" || !thing.linked && !errors.Is(err, safefile.ErrNotRegular) {
				t.Errorf("read by its name: %q, %v", data, err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			f, err := safefile.OpenIn(root, "file")
			if thing.linked != (err == nil) {
				t.Errorf("open in a root: %v", err)
			}
			f.Close()
		})
	}
}

// What the process was given open is read by its name, be it a pipe, up to the limit.
func TestReadNamed(t *testing.T) {
	for _, dir := range []string{"/dev/fd", "/dev/./fd/"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString("text"); errors.Join(err, w.Close()) != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("%s/%d", dir, r.Fd())
		if data, err := safefile.ReadNamed(path, 4); string(data) != "text" || err != nil {
			t.Errorf("%s: %q, %v", path, data, err)
		}
		r.Close()
	}
}

// A named pipe in the place of a directory is none, and is not waited for.
func TestOpenDirectories(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.Mkdir(filepath.Join(dir, "dir"), 0o700)); err != nil {
		t.Fatal(err)
	}
	top, err := safefile.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	for what, open := range map[string]func(name string) error{
		"OpenRoot": func(name string) error {
			root, err := safefile.OpenRoot(filepath.Join(dir, name))
			if err == nil {
				err = root.Close()
			}
			return err
		},
		"OpenRootIn": func(name string) error {
			root, err := safefile.OpenRootIn(top, name)
			if err == nil {
				err = root.Close()
			}
			return err
		},
		"OpenDir": func(name string) error {
			file, err := safefile.OpenDir(filepath.Join(dir, name))
			if err == nil {
				err = file.Close()
			}
			return err
		},
		"ReadDir": func(name string) error {
			_, err := safefile.ReadDir(filepath.Join(dir, name))
			return err
		},
	} {
		for name, want := range map[string]error{"pipe": unix.ENOTDIR, "dir": nil, "none": fs.ErrNotExist} {
			if err := open(name); !errors.Is(err, want) {
				t.Errorf("%s of %s: %v, want %v", what, name, err, want)
			}
		}
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if data, err := safefile.Read(path, 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of none: %q, %v", data, err)
	}
	if err := os.WriteFile(path, []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := safefile.Read(path, 4); string(data) != "four" || err != nil {
		t.Errorf("got %q, %v", data, err)
	}
	data, err := safefile.Read(path, 3)
	if e, ok := errors.AsType[*safefile.TooLargeError](err); !ok || e.Limit != 3 {
		t.Errorf("of a file that is too large: %q, %v", data, err)
	}
}

// What cannot be written is named as the caller knows it.
func TestReplaceThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.Mkdir(path+".new", 0o700), os.WriteFile(filepath.Join(path+".new", "in it"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	err := safefile.Replace(path, []byte("text"), false)
	if err == nil || !strings.HasPrefix(err.Error(), "write "+path+": ") {
		t.Errorf("got %v", err)
	}
}

// What stands in the place of the file, or of the one beside it, is replaced and not
// written to.
func TestReplace(t *testing.T) {
	for name, thing := range things {
		for _, at := range []string{"file", "file.new"} {
			t.Run(name+" at "+at, func(t *testing.T) {
				dir := t.TempDir()
				path, victim := filepath.Join(dir, "file"), filepath.Join(dir, at+".victim")
				if err := errors.Join(thing.put(filepath.Join(dir, at)), os.WriteFile(victim, []byte("victim"), 0o600)); err != nil {
					t.Fatal(err)
				}
				err := safefile.Replace(path, []byte("text"), true)
				if name == "directory" && at == "file" {
					if err == nil {
						t.Error("replaced a directory")
					}
				} else {
					data, failed := os.ReadFile(path)
					if info, _ := os.Lstat(path); err != nil || failed != nil || string(data) != "text" || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
						t.Errorf("replace: %v; there is %q, %v", err, data, failed)
					}
				}
				if text, err := os.ReadFile(victim); string(text) != "victim" {
					t.Errorf("the victim: %q, %v", text, err)
				}
				if left, _ := filepath.Glob(filepath.Join(dir, "*.new")); left != nil {
					t.Errorf("left behind: %v", left)
				}
			})
		}
	}
}

// A file that could not be filled takes no place, and leaves nothing.
func TestRenew(t *testing.T) {
	dir := t.TempDir()
	path, full := filepath.Join(dir, "file"), errors.New("full")
	fill := func(text string, err error) func(*os.File) error {
		return func(f *os.File) error {
			_, failed := f.WriteString(text)
			return errors.Join(failed, err)
		}
	}
	f, err := safefile.Renew(path, fill("old", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f, err := safefile.Renew(path, fill("new", full)); !errors.Is(err, full) {
		t.Errorf("got %v, %v", f, err)
	}
	if at, err := safefile.At(path, f); !at || err != nil {
		t.Errorf("another file: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	next, err := safefile.Renew(path, fill("new", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if at, err := safefile.At(path, f); at || err != nil {
		t.Errorf("the old file is still there: %v", err)
	}
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if at, err := safefile.At(path, next); at || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a file that was moved away: %t, %v", at, err)
	}
	if err := os.Symlink(path+".moved", path); err != nil {
		t.Fatal(err)
	}
	if at, err := safefile.At(path, next); at || err != nil {
		t.Errorf("of a link to the file: %t, %v", at, err)
	}
}

// A lock is of one open file, and is free at once when that lets it go.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	open := func() *os.File {
		f, err := safefile.Open(path, os.O_RDWR|os.O_CREATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if err := safefile.Lock(first); err != nil {
		t.Fatal(err)
	}
	if err := safefile.Lock(second); !errors.Is(err, safefile.ErrLocked) {
		t.Errorf("got %v, want it locked", err)
	}
	// A process that is being started has all that is open, for a moment.
	inherited, err := unix.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	got := make(chan error, 1)
	go func() { got <- safefile.WaitLock(second) }()
	if err := safefile.Release(first); err != nil {
		t.Error(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second): // a test that hangs says less
		t.Fatal("the lock is not free")
	}
}

func TestProbe(t *testing.T) {
	dir := t.TempDir()
	if err := safefile.Probe(dir, 4096); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := safefile.Probe(filepath.Join(dir, "none"), 4096); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no directory: %v", err)
	}
}

func TestProbeWithoutRoom(t *testing.T) {
	const inside = "NEXUS_TEST_WITHOUT_ROOM"
	if os.Getenv(inside) == "" { // in a process of its own, as the limit holds for the log of the test, too
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	dir := t.TempDir()
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	small := limit
	small.Cur = 100 // bytes; the system says of it what it says of a full disk: not all was written
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)
	if err := safefile.Probe(dir, 4096); !errors.Is(err, unix.EFBIG) {
		t.Errorf("where there is no room: %v", err)
	}
}

// A directory that all may write holds files of any user: those of a project are ours or
// root's, and so are the directories and links on the way to them.
func TestOpenRefusesAnothersFile(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can give files away
	}
	for _, tt := range []struct {
		name, foreign string
		want          string // "" is no error
	}{
		{"of a shared directory", ".", ""},
		{"a file", "sub/file", "belongs to another user"},
		{"its directory", "sub", "is in sub, which belongs to another user"},
		{"a link to ours", "sub/link", "belongs to another user"},
		{"the target of ours", "target", "belongs to another user"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(
				os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, "sub/file"), []byte("x"), 0o644),
				os.WriteFile(filepath.Join(dir, "target"), []byte("x"), 0o644), os.Symlink("../target", filepath.Join(dir, "sub/link")),
				os.Lchown(filepath.Join(dir, tt.foreign), 12345, -1),
			); err != nil {
				t.Fatal(err)
			}
			name := "sub/file"
			if tt.foreign == "sub/link" || tt.foreign == "target" {
				name = "sub/link"
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			file, opened := safefile.OpenIn(root, name)
			if opened == nil {
				file.Close()
			}
			_, read := safefile.ReadOwn(dir, name, 1)
			for _, err := range []error{opened, read} {
				if errors.Is(err, safefile.ErrForeign) != (tt.want != "") || err != nil && !strings.HasSuffix(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			}
		})
	}
}
