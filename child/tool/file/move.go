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
	"golang.org/x/sys/unix"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

// maxCopy bounds a file that is copied, in bytes.
const maxCopy = 1 << 30

var moveSpec = tool.Spec{
	Name:        "move_file",
	Description: "Move or rename a file. It makes missing directories, and replaces nothing unless overwrite is true.",
	InputSchema: fromTo,
}

var copySpec = tool.Spec{
	Name:        "copy_file",
	Description: "Copy a file, with its mode. It makes missing directories, and replaces nothing unless overwrite is true.",
	InputSchema: fromTo,
}

var fromTo = jsontext.Value(`{"type":"object","properties":{` +
	`"from":{"type":"string","description":"what there is, absolute or relative to the working directory"},` +
	`"to":{"type":"string","description":"its new path, with its name"},` +
	`"overwrite":{"type":"boolean","description":"replace a file that is there; false by default"}},` +
	`"required":["from","to"],"additionalProperties":false}`)

var deleteSpec = tool.Spec{
	Name:        "delete_file",
	Description: "Delete a file, or an empty directory.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the file, absolute or relative to the working directory"}},` +
		`"required":["path"],"additionalProperties":false}`),
}

type moveInput struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Overwrite *bool  `json:"overwrite"`
}

func (in moveInput) about() (paths []string, summary string) {
	return []string{in.From, in.To}, "move " + in.From + " to " + in.To
}

func (in moveInput) run(ctx context.Context, _ *files, s Space) (tool.Result, error) {
	from, err := s.find("move", in.From, true)
	if err != nil {
		return tool.Result{}, err
	}
	defer from.close()
	to, err := s.find("move", in.To, true)
	if err != nil {
		return tool.Result{}, err
	}
	defer to.close()
	if err := from.noLink("move"); err != nil {
		return tool.Result{}, err
	}
	if from.path == to.path {
		return tool.Result{}, fmt.Errorf("move %s: %s is the same", in.From, in.To)
	}
	isNew, err := from.moveTo(ctx, to, protocol.Value(in.Overwrite))
	switch {
	case errors.Is(err, unix.EXDEV):
		return tool.Result{}, fmt.Errorf("move %s: %s is on another file system: copy_file and delete_file do it", in.From, in.To)
	case err != nil:
		return tool.Result{}, explain("move", in.From, err)
	}
	result := tool.Result{Text: fmt.Sprintf("moved %s to %s", in.From, in.To), Changed: []string{from.path, to.path}}
	if isNew {
		result.Created = []string{to.path}
	}
	return result, nil
}

// moveTo renames what is at the place, in one step, and reports whether there was nothing before.
func (p *place) moveTo(ctx context.Context, to *place, overwrite bool) (isNew bool, err error) {
	there, base, old, err := p.existing()
	if err != nil {
		return false, err
	}
	defer there.Close()
	if !old.Mode().IsRegular() { // a directory could have in it what is out of bounds
		return false, fmt.Errorf("it is %s", kind(old.Mode()))
	}
	dir, err := to.parent(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = dir.Close() }() // nothing waits to be written
	isNew, err = to.replaceable(dir, overwrite)
	if err != nil {
		return false, err
	}
	into, err := dir.Open(".")
	if err != nil {
		return false, err
	}
	defer into.Close()
	return isNew, unix.Renameat(int(there.Fd()), base, int(into.Fd()), filepath.Base(to.name))
}

// replaceable checks that something may be put at the place, whose directory is open, and reports whether
// nothing is there.
func (p *place) replaceable(dir *os.Root, overwrite bool) (isNew bool, err error) {
	base := filepath.Base(p.name)
	if err := p.permitIn(dir, base); err != nil {
		return false, err
	}
	old, err := dir.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, err
	case !old.Mode().IsRegular():
		return false, fmt.Errorf("%s is there, and is %s", p.asked, kind(old.Mode()))
	case !overwrite:
		return false, fmt.Errorf("%s is there; overwrite replaces a file by a file", p.asked)
	case old.Mode().Perm()&0o200 == 0:
		return false, fmt.Errorf("%s is read-only", p.asked)
	}
	return false, nil
}

// existing opens the directory of what is at the place and may be changed.
func (p *place) existing() (dir *os.File, base string, info fs.FileInfo, err error) {
	base = filepath.Base(p.name)
	if base == "." {
		return nil, "", nil, errors.New("it is the working directory, or what the agent was allowed as a whole")
	}
	root, err := safefile.OpenRootIn(p.root, filepath.Dir(p.name))
	if err != nil {
		return nil, "", nil, err
	}
	defer func() { _ = root.Close() }() // nothing waits to be written
	if err := p.permitIn(root, base); err != nil {
		return nil, "", nil, err
	}
	if info, err = root.Lstat(base); err != nil {
		return nil, "", nil, err
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o200 == 0 {
		return nil, "", nil, errors.New("it is read-only")
	}
	dir, err = root.Open(".")
	return dir, base, info, err
}

// noLink refuses a path that is a symbolic link itself: what it leads to is meant seldom.
func (p *place) noLink(attempt string) error {
	path, err := safefile.ExpandTilde(p.asked)
	if err == nil && !filepath.IsAbs(path) {
		path = p.space.Cwd + string(filepath.Separator) + path
	}
	dir := ""
	if err == nil {
		dir, err = Real(filepath.Dir(path))
	}
	if err != nil || filepath.Join(dir, filepath.Base(path)) != p.path {
		return fmt.Errorf("%s %s: it is a symbolic link: name the file that it leads to, or use shell", attempt, p.asked)
	}
	return nil
}

type copyInput struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Overwrite *bool  `json:"overwrite"`
}

// about names what is changed alone: what is copied must be in reach without asking.
func (in copyInput) about() (paths []string, summary string) {
	return []string{in.To}, "copy " + in.From + " to " + in.To
}

func (in copyInput) run(ctx context.Context, _ *files, s Space) (tool.Result, error) {
	from, err := s.find("copy", in.From, false)
	if err != nil {
		return tool.Result{}, err
	}
	defer from.close()
	to, err := s.find("copy", in.To, true)
	if err != nil {
		return tool.Result{}, err
	}
	defer to.close()
	if from.path == to.path {
		return tool.Result{}, fmt.Errorf("copy %s: %s is the same", in.From, in.To)
	}
	f, info, err := from.regular("copy")
	if err != nil {
		return tool.Result{}, err
	}
	defer f.Close()
	if info.Size() > maxCopy {
		return tool.Result{}, fmt.Errorf("copy %s: it has %d bytes, at most %d are copied", in.From, info.Size(), maxCopy)
	}
	dir, err := to.parent(ctx)
	if err != nil {
		return tool.Result{}, explain("copy", in.To, err)
	}
	defer func() { _ = dir.Close() }() // nothing waits to be written
	isNew, err := to.replaceable(dir, protocol.Value(in.Overwrite))
	if err == nil {
		err = replace(ctx, dir, filepath.Base(to.name), io.LimitReader(cancelled{ctx, f}, maxCopy), info.Mode().Perm())
	}
	if err != nil {
		return tool.Result{}, explain("copy", in.To, err)
	}
	result := tool.Result{Text: fmt.Sprintf("copied %s to %s (%d bytes)", in.From, in.To, info.Size()), Changed: []string{to.path}}
	if isNew {
		result.Created = result.Changed
	}
	return result, nil
}

type deleteInput struct {
	Path string `json:"path"`
}

func (in deleteInput) about() (paths []string, summary string) {
	return []string{in.Path}, "delete " + in.Path
}

func (in deleteInput) run(_ context.Context, _ *files, s Space) (tool.Result, error) {
	p, err := s.find("delete", in.Path, true)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.close()
	if err := p.noLink("delete"); err != nil {
		return tool.Result{}, err
	}
	dir, base, info, err := p.existing()
	if err != nil {
		return tool.Result{}, explain("delete", in.Path, err)
	}
	defer dir.Close()
	what, flags := "", 0
	if info.IsDir() {
		what, flags = "the empty directory ", unix.AT_REMOVEDIR
	}
	if err := unix.Unlinkat(int(dir.Fd()), base, flags); err != nil {
		return tool.Result{}, explain("delete", in.Path, err)
	}
	return tool.Result{Text: "deleted " + what + in.Path, Changed: []string{p.path}}, nil
}
