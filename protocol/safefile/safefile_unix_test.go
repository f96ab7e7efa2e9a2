//go:build unix

package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/safefile"
)

// things are what somebody could put in a file's place.
var things = map[string]func(path string) error{
	"link":           func(path string) error { return os.Symlink(path+".victim", path) },
	"link to device": func(path string) error { return os.Symlink("/dev/zero", path) },
	"pipe":           func(path string) error { return unix.Mkfifo(path, 0o600) },
	"directory":      func(path string) error { return os.Mkdir(path, 0o700) },
}

func TestOpenRefusesWhatIsNotRegular(t *testing.T) {
	for name, put := range things {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := errors.Join(put(path), os.WriteFile(path+".victim", []byte("victim"), 0o600)); err != nil {
				t.Fatal(err)
			}
			for _, flags := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_APPEND} {
				if f, err := safefile.Open(path, flags); !errors.Is(err, safefile.ErrNotRegular) {
					t.Errorf("open with %#x: %v, %v", flags, f, err)
				}
			}
			if data, err := safefile.Read(path, 100); !errors.Is(err, safefile.ErrNotRegular) {
				t.Errorf("read: %q, %v", data, err)
			}
		})
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
	if data, err := safefile.Read(path, 3); !errors.Is(err, safefile.ErrTooLarge) {
		t.Errorf("of one that is too large: %q, %v", data, err)
	}
}

// What stands in the place of the file, or of the one beside it, is replaced and not
// written to.
func TestReplace(t *testing.T) {
	for name, put := range things {
		for _, at := range []string{"file", "file.new"} {
			t.Run(name+" at "+at, func(t *testing.T) {
				dir := t.TempDir()
				path, victim := filepath.Join(dir, "file"), filepath.Join(dir, at+".victim")
				if err := errors.Join(put(filepath.Join(dir, at)), os.WriteFile(victim, []byte("victim"), 0o600)); err != nil {
					t.Fatal(err)
				}
				err := safefile.Replace(path, []byte("text"), true)
				if name == "directory" && at == "file" {
					if err == nil {
						t.Error("replaced a directory")
					}
					return
				}
				data, failed := os.ReadFile(path)
				if info, _ := os.Lstat(path); err != nil || failed != nil || string(data) != "text" || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
					t.Errorf("replace: %v; there is %q, %v", err, data, failed)
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
