package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// maxEntries is how many entries of a directory are listed.
const maxEntries = 2000

var listSpec = tool.Spec{
	Name:        "list_directory",
	Description: "List a directory, or the working directory.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the directory, absolute or relative to the working directory, which is the default"}},` +
		`"additionalProperties":false}`),
}

type listInput struct {
	Path *string `json:"path"`
}

func (in listInput) about() (paths []string, summary string) {
	path := protocol.ValueOr(in.Path, ".")
	return []string{path}, "list " + path
}

func (in listInput) run(ctx context.Context, _ *files, s Space) (tool.Result, error) {
	asked := protocol.ValueOr(in.Path, ".")
	p, err := s.find("list", asked, false)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.close()
	dir, path, err := p.open(p.name)
	if err != nil {
		return tool.Result{}, explain("list", asked, err)
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return tool.Result{}, explain("list", asked, err)
	}
	if !info.IsDir() {
		return tool.Result{}, fmt.Errorf("list %s: it is not a directory", asked)
	}
	entries, err := dir.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return tool.Result{}, explain("list", asked, err)
	}
	if len(entries) == 0 {
		return tool.Result{Text: "[the directory is empty]"}, nil
	}
	more := len(entries) > maxEntries
	if more {
		entries = entries[:maxEntries]
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	var text strings.Builder
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return tool.Result{}, err
		}
		text.WriteString(p.describe(entry))
		if s.check(filepath.Join(path, entry.Name()), asked, false) != nil {
			text.WriteString(" [out of bounds]")
		}
		text.WriteByte('\n')
	}
	if more {
		fmt.Fprintf(&text, "[there are more than %d entries; the rest is left out]\n", maxEntries)
	}
	return tool.Result{Text: text.String()}, nil
}

// describe is one line of a listing: "sub/", "notes.txt (12 bytes)",
// "link -> target", "pipe (a named pipe)".
func (p *place) describe(entry fs.DirEntry) string {
	name := textcut.Name(entry.Name())
	switch mode := entry.Type(); {
	case mode.IsDir():
		return name + "/"
	case mode&fs.ModeSymlink != 0:
		target, err := p.root.Readlink(filepath.Join(p.name, entry.Name()))
		if err != nil {
			return name + " (" + kind(mode) + ")"
		}
		return name + " -> " + textcut.Name(target)
	case mode.IsRegular():
		info, err := entry.Info()
		if err != nil {
			return name // it has gone since
		}
		return fmt.Sprintf("%s (%d bytes)", name, info.Size())
	default:
		return name + " (" + kind(mode) + ")"
	}
}
