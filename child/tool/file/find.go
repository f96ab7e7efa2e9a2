package file

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file/glob"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
)

// maxFound is how many paths one answer names.
const maxFound = 1000

var globSpec = tool.Spec{
	Name: "glob",
	Description: "Find files by their names, without those that .gitignore files name. * and ? stand for what is within a name, " +
		"** for any directories, {a,b} for either. A pattern that ends in / finds directories.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"pattern":{"type":"string","description":"for example **/*.go or src/**/*.{ts,tsx}; relative to path"},` +
		`"path":{"type":"string","description":"the directory to look in, absolute or relative to the working directory, which is the default"}},` +
		`"required":["pattern"],"additionalProperties":false}`),
}

type globInput struct {
	Pattern string  `json:"pattern"`
	Path    *string `json:"path"`
}

func (in globInput) about() (paths []string, summary string) {
	path := protocol.ValueOr(in.Path, ".")
	return []string{path}, fmt.Sprintf("find %s in %s", in.Pattern, path)
}

func (in globInput) run(ctx context.Context, _ *files, s Space) (tool.Result, error) {
	asked := protocol.ValueOr(in.Path, ".")
	p, err := s.find("glob", asked, false)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.close()
	if filepath.IsAbs(in.Pattern) {
		relative, ok := safefile.Below(p.path, in.Pattern)
		if !ok {
			return tool.Result{}, &strict.Error{Path: "pattern", Problem: "must be relative to path, or lie in it"}
		}
		if strings.HasSuffix(in.Pattern, "/") {
			relative += "/"
		}
		in.Pattern = relative
	}
	text, wantDirs := strings.CutSuffix(in.Pattern, "/")
	pattern, err := compileGlob("pattern", text)
	if err != nil {
		return tool.Result{}, err
	}
	base := s.shown(p.path)
	var found strings.Builder
	count, more := 0, false
	w := walk{at: p, only: &pattern, visit: func(name string, entry fs.DirEntry) error {
		if entry.IsDir() != wantDirs || !pattern.Match(name) {
			return nil
		}
		line := textcut.Name(path.Join(base, name))
		if wantDirs {
			line += "/"
		}
		if count == maxFound || found.Len()+len(line) >= maxRead {
			more = true
			return errEnough
		}
		count++
		found.WriteString(line + "\n")
		return nil
	}}
	if err := w.run(ctx); err != nil {
		if ctx.Err() != nil {
			return tool.Result{}, ctx.Err()
		}
		return tool.Result{}, explain("glob", asked, err)
	}
	switch {
	case more:
		fmt.Fprintf(&found, "[there are more than these %d; the rest is left out]\n", count)
	case count == 0:
		found.WriteString("[nothing matches, but for what .gitignore files name]\n")
	}
	return tool.Result{Text: found.String() + w.notes()}, nil
}

// compileGlob reads the pattern in a member of the input.
func compileGlob(member, text string) (glob.Pattern, error) {
	text = strings.TrimPrefix(text, "./")
	switch {
	case text == "":
		return glob.Pattern{}, &strict.Error{Path: member, Problem: "is empty"}
	case path.IsAbs(text):
		return glob.Pattern{}, &strict.Error{Path: member, Problem: "must be relative to path"}
	case strings.HasPrefix(text, "../") || strings.Contains(text, "/../") || strings.HasSuffix(text, "/..") || text == "..":
		return glob.Pattern{}, &strict.Error{Path: member, Problem: `must not contain ".."`}
	}
	p, err := glob.Compile(text)
	if err != nil {
		return glob.Pattern{}, &strict.Error{Path: member, Problem: "cannot be used: " + err.Error()}
	}
	return p, nil
}
