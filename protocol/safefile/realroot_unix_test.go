//go:build unix

package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"nexus.internal/protocol/safefile"
)

// A path that was checked may lead through a link by the time it is opened: a program that
// exchanged a directory with a link, meanwhile, had the files of another directory read.
func TestOpenRealRoot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(top string) error // of top/way/dir, which was checked
		want   error                  // nil: the directory is opened
		at     string                 // the path that the error names, below top
	}{
		{"nothing", func(string) error { return nil }, nil, ""},
		{"on a way that nobody may read", func(top string) error { return os.Chmod(top+"/way", 0o100) }, nil, ""},
		{"the directory became a link", func(top string) error {
			return errors.Join(os.Rename(top+"/way/dir", top+"/dir"), os.Symlink(top+"/victim/dir", top+"/way/dir"))
		}, safefile.ErrLinked, "way/dir"},
		{"a link to a directory beside it", func(top string) error {
			return errors.Join(os.Rename(top+"/way/dir", top+"/way/old"), os.Symlink("old", top+"/way/dir"))
		}, safefile.ErrLinked, "way/dir"},
		{"a directory above it became a link", func(top string) error {
			return errors.Join(os.Rename(top+"/way", top+"/old"), os.Symlink("victim", top+"/way"))
		}, safefile.ErrLinked, "way"},
		{"a link to nothing", func(top string) error {
			return errors.Join(os.Rename(top+"/way", top+"/old"), os.Symlink("none", top+"/way"))
		}, safefile.ErrLinked, "way"},
		{"it has gone", func(top string) error { return os.Rename(top+"/way/dir", top+"/dir") }, fs.ErrNotExist, "way/dir"},
		{"a file", func(top string) error {
			return errors.Join(os.Rename(top+"/way/dir", top+"/dir"), os.WriteFile(top+"/way/dir", nil, 0o600))
		}, syscall.ENOTDIR, "way/dir"},
		{"a pipe", func(top string) error {
			return errors.Join(os.Rename(top+"/way/dir", top+"/dir"), syscall.Mkfifo(top+"/way/dir", 0o600))
		}, syscall.ENOTDIR, "way/dir"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{"way/dir", "victim/dir"} {
				if err := errors.Join(os.MkdirAll(filepath.Join(top, dir), 0o700), os.WriteFile(filepath.Join(top, dir, "file"), []byte(dir), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if err := tt.change(top); err != nil {
				t.Fatal(err)
			}
			root, err := safefile.OpenRealRoot(filepath.Join(top, "way/dir"))
			if err == nil {
				defer root.Close()
			}
			if !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if tt.want != nil {
				if e, ok := errors.AsType[*fs.PathError](err); !ok || e.Path != filepath.Join(top, tt.at) {
					t.Errorf("the error does not name %s: %v", tt.at, err)
				}
				return
			}
			if text, err := root.ReadFile("file"); string(text) != "way/dir" {
				t.Errorf("read %q, %v", text, err)
			}
		})
	}
}

// No exchange of the directory with a link, at whatever moment, has another directory opened.
func TestOpenRealRootWhileItIsExchanged(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"dir", "victim"} {
		if err := errors.Join(os.Mkdir(filepath.Join(top, dir), 0o700), os.WriteFile(filepath.Join(top, dir, "file"), []byte(dir), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	dir, aside := filepath.Join(top, "dir"), filepath.Join(top, "aside")
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := errors.Join(os.Rename(dir, aside), os.Symlink("victim", dir), os.Remove(dir), os.Rename(aside, dir)); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 2000 {
		root, err := safefile.OpenRealRoot(dir)
		if err != nil {
			continue // for one of several reasons
		}
		if text, err := root.ReadFile("file"); string(text) != "dir" {
			t.Errorf("read %q, %v", text, err)
		}
		_ = root.Close()
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
