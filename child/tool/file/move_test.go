package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nexus.internal/child/tool/file"
)

func TestMoveCopyDelete(t *testing.T) {
	r := newRoom(t)
	r.put("a", "one")
	r.must(os.Chmod(filepath.Join(r.dir, "a"), 0o751))
	r.want("copied a to sub/deep/b (3 bytes)", "copy_file", "from", "a", "to", "sub/deep/b")
	r.want("!copy sub/deep/b: sub/deep/b is there; overwrite replaces a file by a file", "copy_file", "from", "a", "to", "sub/deep/b")
	r.put("c", "three")
	r.want("copied c to sub/deep/b (5 bytes)", "copy_file", "from", "c", "to", "sub/deep/b", "overwrite", true)
	if got := r.get(filepath.Join(r.dir, "sub/deep/b")); got != "three" {
		t.Errorf("the copy has %q", got)
	}
	r.want("moved a to sub/moved", "move_file", "from", "a", "to", "sub/moved")
	if info, err := os.Stat(filepath.Join(r.dir, "sub/moved")); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("mode %v, error %v", info, err)
	}
	r.want("!move a: there is no such file or directory", "move_file", "from", "a", "to", "x")
	r.want("!move c: sub/moved is there; overwrite replaces a file by a file", "move_file", "from", "c", "to", "sub/moved")
	r.want("!move c: sub is there, and is a directory", "move_file", "from", "c", "to", "sub", "overwrite", true)
	r.want("!move sub: it is a directory", "move_file", "from", "sub", "to", "x")
	r.want("!move c: ./c is the same", "move_file", "from", "c", "to", "./c", "overwrite", true)
	r.want("moved c to sub/moved", "move_file", "from", "c", "to", "sub/moved", "overwrite", true)
	r.want("deleted sub/moved", "delete_file", "path", "sub/moved")
	r.want("!delete sub/moved: there is no such file or directory", "delete_file", "path", "sub/moved")
	r.want("!delete sub: directory not empty", "delete_file", "path", "sub")
	r.want("deleted sub/deep/b", "delete_file", "path", "sub/deep/b")
	r.want("deleted the empty directory sub/deep", "delete_file", "path", "sub/deep")
	r.want("!delete .: it is the working directory, or what the agent was allowed as a whole", "delete_file", "path", ".")
	r.put("locked", "x")
	r.must(os.Chmod(filepath.Join(r.dir, "locked"), 0o444))
	r.want("!delete locked: it is read-only", "delete_file", "path", "locked")
	r.must(syscall.Mkfifo(filepath.Join(r.dir, "fifo"), 0o600))
	r.want("!delete fifo: it is a named pipe", "delete_file", "path", "fifo")
	r.want("!move locked: it is read-only", "move_file", "from", "locked", "to", "x")
	r.must(syscall.Mkfifo(filepath.Join(r.dir, "pipe"), 0o666))
	r.want("!copy pipe: it is a named pipe", "copy_file", "from", "pipe", "to", "x")
	r.want("!move pipe: it is a named pipe", "move_file", "from", "pipe", "to", "x")
}

// None of them leaves the directory, follows a link that it is given, or touches what is out of bounds.
func TestMoveCopyDeleteStayInside(t *testing.T) {
	r := newRoom(t)
	r.put("a", "one")
	r.put("keep/k", "kept")
	for name, target := range map[string]string{"out": r.outside, "secret": r.outside + "/secret.txt", "link": "a", "a2": "keep/k"} {
		r.must(os.Symlink(target, filepath.Join(r.dir, name)))
	}
	r.must(os.MkdirAll(filepath.Join(r.dir, "same"), 0o777))
	r.must(os.Symlink("../keep/k", filepath.Join(r.dir, "same/k")))
	secret := r.outside + "/secret.txt"
	for _, call := range [][]any{
		{"move_file", "from", "a", "to", "../outside/x"},
		{"move_file", "from", "../outside/secret.txt", "to", "x"},
		{"move_file", "from", "out/secret.txt", "to", "x"},
		{"move_file", "from", "a", "to", "out/x"},
		{"move_file", "from", "secret", "to", "x"},
		{"copy_file", "from", secret, "to", "x"},
		{"copy_file", "from", "secret", "to", "x"},
		{"copy_file", "from", "a", "to", "out/x"},
		{"copy_file", "from", "a", "to", "secret", "overwrite", true},
		{"delete_file", "path", secret},
		{"delete_file", "path", "out/secret.txt"},
		{"delete_file", "path", "secret"},
		{"delete_file", "path", "out"},
		{"delete_file", "path", ".."},
		{"delete_file", "path", "keep/.."},
		{"delete_file", "path", ""},
	} {
		if got, err := r.run(call[0].(string), call[1:]...); err == nil {
			t.Errorf("%v: %s", call, got)
		}
	}
	for _, path := range []string{"link", "a2", "same/k"} {
		r.want("!delete "+path+": it is a symbolic link: name the file that it leads to, or use shell", "delete_file", "path", path)
		r.want("!move "+path+": it is a symbolic link: name the file that it leads to, or use shell", "move_file", "from", path, "to", "x")
	}
	r.open(file.Space{Cwd: r.dir, Checker: checker(func(path, _ string, write bool) error {
		if write && strings.HasPrefix(path, filepath.Join(r.dir, "keep")) {
			return errors.New("out of bounds")
		}
		return nil
	})})
	r.want("!out of bounds", "delete_file", "path", "keep/k")
	r.want("!out of bounds", "move_file", "from", "keep/k", "to", "x")
	r.want("!out of bounds", "copy_file", "from", "a", "to", "keep/x")
	r.want("copied keep/k to x (4 bytes)", "copy_file", "from", "keep/k", "to", "x")
	for path, want := range map[string]string{secret: "secret", filepath.Join(r.dir, "a"): "one", filepath.Join(r.dir, "keep/k"): "kept"} {
		if got := r.get(path); got != want {
			t.Errorf("%s has %q", path, got)
		}
	}
}
