package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol/strict"
)

// Tools returns read_file, list_directory and write_file on dir, which must
// exist. Closing the closer releases the directory; the tools fail after that.
func Tools(dir string) ([]tool.Tool, io.Closer, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", dir, err)
	}
	root, err := os.OpenRoot(absolute)
	if err != nil {
		return nil, nil, fmt.Errorf("open working directory: %w", err)
	}
	r := &rooted{root: root, names: []string{absolute}}
	if real, err := filepath.EvalSymlinks(absolute); err == nil && real != absolute {
		r.names = append(r.names, real)
	}
	if _, err := root.Lstat(".."); err != nil {
		r.escapes = reason(err)
	}
	return []tool.Tool{
		function[readInput]{readSpec, r.read},
		function[listInput]{listSpec, r.list},
		function[writeInput]{writeSpec, r.write},
	}, root, nil
}

// function is a tool whose input is decoded into an In.
type function[In any] struct {
	spec tool.Spec
	run  func(ctx context.Context, in In) (string, error)
}

func (f function[In]) Spec() tool.Spec { return f.spec }

func (f function[In]) Run(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	var input In
	if err := strict.Unmarshal(in, &input, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	text, err := f.run(ctx, input)
	return tool.Result{Text: text}, err
}

// rooted is the directory that the tools work in.
type rooted struct {
	root    *os.Root
	names   []string // absolute paths of the directory
	escapes error    // what os.Root says of a path that leads out
}

// local turns a path from a model into one relative to the directory.
func (r *rooted) local(path string) (string, error) {
	if path == "" {
		return "", &strict.Error{Path: "path", Problem: "is empty"}
	}
	if !filepath.IsAbs(path) {
		return path, nil
	}
	for _, name := range r.names {
		if relative, err := filepath.Rel(name, path); err == nil && filepath.IsLocal(relative) {
			return relative, nil
		}
	}
	return "", r.outside(path)
}

func (r *rooted) outside(path string) error {
	return fmt.Errorf("%s is outside the working directory", path)
}

// explain puts an error of the file system into words for a model: the path as
// the model wrote it, and no other.
func (r *rooted) explain(attempt, path string, err error) error {
	cause := reason(err)
	switch {
	case r.escapes != nil && errors.Is(cause, r.escapes):
		return r.outside(path)
	case errors.Is(cause, fs.ErrNotExist):
		return fmt.Errorf("%s %s: there is no such file or directory", attempt, path)
	default:
		return fmt.Errorf("%s %s: %w", attempt, path, cause)
	}
}

// reason is the error without the paths that the os package wraps it in.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// kind names what is neither a regular file nor a directory.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	default:
		return "not a regular file"
	}
}
