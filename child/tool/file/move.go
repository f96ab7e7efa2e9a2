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
	c := &change{attempt: "move", at: to, from: from, arrives: true, overwrite: protocol.Value(in.Overwrite)}
	result := tool.Result{Text: fmt.Sprintf("moved %s to %s", in.From, in.To)}
	if result.Changed, err = carryOut(ctx, c); err != nil {
		return tool.Result{}, err
	}
	if c.old == nil {
		result.Created = []string{to.path}
	}
	return result, nil
}

// existing opens the directory of what is at the place and may be changed.
func (p *place) existing() (dir *os.Root, info fs.FileInfo, err error) {
	if p.base() == "." {
		return nil, nil, errors.New("it is the working directory, or what the agent was allowed as a whole")
	}
	dir, err = safefile.OpenRootIn(p.root, filepath.Dir(p.name))
	if err != nil {
		return nil, nil, err
	}
	if err = p.permitIn(dir, p.base()); err == nil {
		info, err = dir.Lstat(p.base())
	}
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o200 == 0 {
		err = errors.New("it is read-only")
	}
	if err != nil {
		_ = dir.Close() // nothing waits to be written
		return nil, nil, err
	}
	return dir, info, nil
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
	content := &counted{from: f}
	c := &change{
		attempt: "copy", at: to, content: content, mode: mode{perm: info.Mode().Perm()},
		arrives: true, overwrite: protocol.Value(in.Overwrite),
	}
	var result tool.Result
	if result.Changed, err = carryOut(ctx, c); err != nil {
		return tool.Result{}, err
	}
	result.Text = fmt.Sprintf("copied %s to %s (%d bytes)", in.From, in.To, content.n)
	if c.old == nil {
		result.Created = result.Changed
	}
	return result, nil
}

// counted reads what is copied; it may grow meanwhile.
type counted struct {
	from io.Reader
	n    int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if c.n += int64(n); c.n > maxCopy {
		return n, fmt.Errorf("it has more than %d bytes", maxCopy)
	}
	return n, err
}

type deleteInput struct {
	Path string `json:"path"`
}

func (in deleteInput) about() (paths []string, summary string) {
	return []string{in.Path}, "delete " + in.Path
}

func (in deleteInput) run(ctx context.Context, _ *files, s Space) (tool.Result, error) {
	p, err := s.find("delete", in.Path, true)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.close()
	if err := p.noLink("delete"); err != nil {
		return tool.Result{}, err
	}
	c := &change{attempt: "delete", at: p}
	changed, err := carryOut(ctx, c)
	if err != nil {
		return tool.Result{}, err
	}
	what := ""
	if c.old.IsDir() {
		what = "the empty directory "
	}
	return tool.Result{Text: "deleted " + what + in.Path, Changed: changed}, nil
}
