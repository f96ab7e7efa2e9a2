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

// Tools returns read_file, list_directory, write_file, edit_file, glob and
// search_text on dir, which must exist. Closing the closer releases the directory; the tools fail after that.
func Tools(dir string) ([]tool.Tool, io.Closer, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", dir, err)
	}
	root, err := os.OpenRoot(absolute)
	if err != nil {
		return nil, nil, fmt.Errorf("open working directory: %w", err)
	}
	r := &rooted{root: root, names: names(absolute), writer: make(chan struct{}, 1)}
	return []tool.Tool{
		function[readInput]{readSpec, r.read},
		function[listInput]{listSpec, r.list},
		function[writeInput]{writeSpec, r.write},
		function[editInput]{editSpec, r.edit},
		function[globInput]{globSpec, r.glob},
		function[searchInput]{searchSpec, r.search},
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
	root   *os.Root
	names  []string      // absolute paths of the directory
	writer chan struct{} // full while a call writes: of two edits at once none is lost
}

// lock waits until no other call writes. The caller must call unlock.
func (r *rooted) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case r.writer <- struct{}{}:
		return func() { <-r.writer }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// local turns a path from a model into one relative to the directory.
func (r *rooted) local(path string) (string, error) {
	if path == "" {
		return "", &strict.Error{Path: "path", Problem: "is empty"}
	}
	if !filepath.IsAbs(path) {
		return path, nil
	}
	if relative, ok := within(r.names, path); ok {
		return relative, nil
	}
	return "", outside(path)
}

// explain puts an error of the file system into words for a model: the path as
// the model wrote it, and no other but that of a link.
func (r *rooted) explain(attempt, path string, err error) error {
	name, refused := r.local(path)
	if refused != nil {
		return refused
	}
	why := Reason(r.root, name, err)
	if errors.Is(why, ErrOutside) {
		return outside(path)
	}
	if _, ok := errors.AsType[*LinkError](why); ok {
		return why
	}
	return fmt.Errorf("%s %s: %w", attempt, path, why)
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
