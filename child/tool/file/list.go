package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
)

// maxEntries is how many entries of a directory are listed.
const maxEntries = 2000

var listSpec = tool.Spec{
	Name:        "list_directory",
	Description: "List a directory in the working directory, or the working directory itself.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"path":{"type":"string","description":"the directory, relative to the working directory, which is the default"}},` +
		`"additionalProperties":false}`),
}

type listInput struct {
	Path *string `json:"path"`
}

func (r *rooted) list(ctx context.Context, in listInput) (string, error) {
	asked := "."
	if in.Path != nil {
		asked = *in.Path
	}
	name, err := r.local(asked)
	if err != nil {
		return "", err
	}
	dir, err := r.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", r.explain("list", asked, err)
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return "", r.explain("list", asked, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("list %s: it is not a directory", asked)
	}
	entries, err := dir.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", r.explain("list", asked, err)
	}
	if len(entries) == 0 {
		return "[the directory is empty]", nil
	}
	more := len(entries) > maxEntries
	if more {
		entries = entries[:maxEntries]
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	var text strings.Builder
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		text.WriteString(r.describe(name, entry))
		text.WriteByte('\n')
	}
	if more {
		fmt.Fprintf(&text, "[there are more than %d entries; the rest is left out]\n", maxEntries)
	}
	return text.String(), nil
}

// describe is one line of a listing: "sub/", "notes.txt (12 bytes)",
// "link -> target", "pipe (a named pipe)".
func (r *rooted) describe(dir string, entry fs.DirEntry) string {
	name := shown(entry.Name())
	switch mode := entry.Type(); {
	case mode.IsDir():
		return name + "/"
	case mode&fs.ModeSymlink != 0:
		target, err := r.root.Readlink(path.Join(dir, entry.Name()))
		if err != nil {
			return name + " (" + kind(mode) + ")"
		}
		return name + " -> " + shown(target)
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

// shown quotes a name that would not stay on its line.
func shown(name string) string {
	if utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl) {
		return name
	}
	return strconv.Quote(name)
}
