package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
)

var writeSpec = tool.Spec{
	Name:        "write_file",
	Description: "Write a text file in the working directory. It replaces what is there and makes missing directories.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the file, relative to the working directory"},` +
		`"content":{"type":"string","description":"all that the file is to hold"}},` +
		`"required":["path","content"],"additionalProperties":false}`),
}

type writeInput struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func (r *rooted) write(ctx context.Context, in writeInput) (string, error) {
	name, err := r.local(in.Path)
	if err != nil {
		return "", err
	}
	unlock, err := r.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	isNew, err := r.put(ctx, name, in.Content)
	if err != nil {
		return "", r.explain("write", in.Path, err)
	}
	if isNew {
		return fmt.Sprintf("wrote %d bytes to %s (a new file)", len(in.Content), in.Path), nil
	}
	return fmt.Sprintf("wrote %d bytes to %s", len(in.Content), in.Path), nil
}

// put makes name hold the content, and reports whether it is a new file.
func (r *rooted) put(ctx context.Context, name, content string) (isNew bool, err error) {
	old, err := r.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := r.makeDir(name); err != nil {
			return false, err
		}
		return true, r.replace(ctx, name, content, 0)
	case err != nil:
		return false, err
	case old.Mode()&fs.ModeSymlink != 0:
		return false, r.writeThrough(name, content)
	case !old.Mode().IsRegular():
		return false, fmt.Errorf("it is %s", kind(old.Mode()))
	case old.Mode().Perm()&0o200 == 0:
		return false, errors.New("it is read-only")
	default:
		return false, r.replace(ctx, name, content, old.Mode().Perm())
	}
}

// makeDir makes the directories on the way to name. Where name goes up again by
// "..", they must be there: where that leads is only known of what exists.
func (r *rooted) makeDir(name string) error {
	dir, _ := filepath.Split(name)
	if slices.Contains(strings.Split(filepath.ToSlash(dir), "/"), "..") {
		_, err := r.root.Stat(dir)
		return err
	}
	return r.root.MkdirAll(filepath.Clean(dir), 0o777)
}

// replace puts a file with the content in the place of name, in one step: who
// reads name meanwhile finds the old content or the new. The file keeps perm,
// unless that is 0.
func (r *rooted) replace(ctx context.Context, name, content string, perm fs.FileMode) (err error) {
	temporary := path.Join(path.Dir(name), ".nexus-"+rand.Text()+".tmp")
	f, err := r.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = r.root.Remove(temporary)
		}
	}()
	_, err = f.WriteString(content)
	if err == nil && perm != 0 {
		err = f.Chmod(perm)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = ctx.Err() // an aborted call leaves the old content
	}
	if err != nil {
		return err
	}
	return r.root.Rename(temporary, name)
}

// writeThrough writes to what a symbolic link points to, as long as that is a
// regular file inside the directory. It is not done in one step.
func (r *rooted) writeThrough(name, content string) error {
	if target, err := r.root.Stat(name); err == nil {
		switch {
		case !target.Mode().IsRegular():
			return fmt.Errorf("it points to %s", kind(target.Mode()))
		case target.Mode().Perm()&0o200 == 0:
			return errors.New("it points to a read-only file")
		}
	}
	f, err := r.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
