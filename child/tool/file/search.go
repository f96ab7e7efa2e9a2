package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file/glob"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

const (
	defaultResults = 200
	maxResults     = 1000
	maxShown       = 400       // bytes of a line that an answer shows
	beforeMatch    = 100       // of them before the match, where the line is cut
	maxLine        = 256 << 10 // bytes of a line that are searched at once
	maxAround      = 50        // lines of context before, and after, a match
	maxWhole       = 4 << 20   // bytes of a file in which matches of several lines are looked for
)

var searchSpec = tool.Spec{
	Name: "search_text",
	Description: "Search the lines of text files by a regular expression (Go's, RE2), without the files that .gitignore files name. " +
		"The answer has lines of the form file:line:text, those around them file-line-text.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"pattern":{"type":"string","description":"the regular expression, matched with each line"},` +
		`"path":{"type":"string","description":"the file or directory to search, absolute or relative to the working directory, which is the default"},` +
		`"glob":{"type":"string","description":"search only such files: *.go by name, src/**/*.go by path; relative to path"},` +
		`"type":{"type":"string","description":"search only files of this language, by their names: go, py, js, ts, rust, java, c, cpp, md, json, yaml, …"},` +
		`"multiline":{"type":"boolean","description":"a match may have several lines, and ^ and $ stand for the ends of each; false by default"},` +
		`"before":{"type":"integer","minimum":0,"maximum":50,"description":"lines to show before each match; 0 by default"},` +
		`"after":{"type":"integer","minimum":0,"maximum":50,"description":"lines to show after each match; 0 by default"},` +
		`"context":{"type":"integer","minimum":0,"maximum":50,"description":"both before and after"},` +
		`"output":{"type":"string","enum":["lines","files","counts"],"description":"matching lines (the default), names of files with a match, or file:count of matching lines"},` +
		`"ignore_case":{"type":"boolean","description":"false by default"},` +
		`"literal":{"type":"boolean","description":"the pattern is no regular expression but a plain text; false by default"},` +
		`"max_results":{"type":"integer","minimum":1,"maximum":1000,"description":"matching lines, or files, wanted at most; 200 by default"}},` +
		`"required":["pattern"],"additionalProperties":false}`),
}

type searchInput struct {
	Pattern    string  `json:"pattern"`
	Path       *string `json:"path"`
	Glob       *string `json:"glob"`
	Type       *string `json:"type"`
	Multiline  *bool   `json:"multiline"`
	Before     *uint64 `json:"before"`  // lines
	After      *uint64 `json:"after"`   // lines
	Context    *uint64 `json:"context"` // lines
	Output     *string `json:"output"`
	IgnoreCase *bool   `json:"ignore_case"`
	Literal    *bool   `json:"literal"`
	MaxResults *uint64 `json:"max_results"` // lines, or files
}

func (in searchInput) about() (paths []string, summary string) {
	path := protocol.ValueOr(in.Path, ".")
	return []string{path}, fmt.Sprintf("search %s for %s", path, in.Pattern)
}

func (in searchInput) run(ctx context.Context, _ *files, space Space) (tool.Result, error) {
	s, only, ofType, err := in.search()
	if err != nil {
		return tool.Result{}, err
	}
	asked := protocol.ValueOr(in.Path, ".")
	p, err := space.find("search", asked, false)
	if err != nil {
		return tool.Result{}, err
	}
	defer p.close()
	s.at, s.base = p, space.shown(p.path)
	info, err := p.root.Stat(p.name)
	if err != nil {
		return tool.Result{}, explain("search", asked, err)
	}
	w := walk{at: p, only: only, visit: func(name string, entry fs.DirEntry) error {
		if !entry.Type().IsRegular() || only != nil && !only.Match(name) || ofType != nil && !ofType.Match(name) {
			return nil
		}
		err := s.file(ctx, name)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errEnough) {
			s.unread++ // it has gone since, or is not for us
			return nil
		}
		return err
	}}
	if info.IsDir() {
		err = w.run(ctx)
	} else if err = s.file(ctx, "."); errors.Is(err, errEnough) {
		err = nil
	}
	switch {
	case ctx.Err() != nil:
		return tool.Result{}, ctx.Err()
	case err != nil:
		return tool.Result{}, explain("search", asked, err)
	}
	return tool.Result{Text: s.answer() + w.notes()}, nil
}

// search checks the input, and is what it asks for: the search, and the patterns of the names of
// its files, nil for all.
func (in searchInput) search() (s search, only, ofType *glob.Pattern, err error) {
	bounded := func(member string, value *uint64, least, most, otherwise uint64) int {
		n := protocol.ValueOr(value, otherwise)
		if (n < least || n > most) && err == nil {
			err = &strict.Error{Path: member, Problem: fmt.Sprintf("must be between %d and %d", least, most)}
		}
		return int(min(n, most))
	}
	around := bounded("context", in.Context, 0, maxAround, 0)
	s = search{
		lines: bufio.NewReaderSize(nil, maxLine), output: protocol.ValueOr(in.Output, outputLines), multiline: protocol.Value(in.Multiline),
		most:   bounded("max_results", in.MaxResults, 1, maxResults, defaultResults),
		before: bounded("before", in.Before, 0, maxAround, uint64(around)), after: bounded("after", in.After, 0, maxAround, uint64(around)),
	}
	if !slices.Contains([]string{outputLines, outputFiles, outputCounts}, s.output) && err == nil {
		err = &strict.Error{Path: "output", Problem: fmt.Sprintf("is %.64q, want lines, files or counts", s.output)}
	}
	if err != nil {
		return s, nil, nil, err
	}
	if s.matcher, err = newMatcher(in.Pattern, protocol.Value(in.Literal), protocol.Value(in.IgnoreCase), s.multiline); err != nil {
		return s, nil, nil, err
	}
	if in.Glob != nil {
		if only, err = filter(*in.Glob); err != nil {
			return s, nil, nil, err
		}
	}
	if in.Type != nil {
		names, ok := fileTypes()[*in.Type]
		if !ok {
			known := strings.Join(slices.Sorted(maps.Keys(fileTypes())), ", ")
			return s, nil, nil, &strict.Error{Path: "type", Problem: fmt.Sprintf("is %.64q, want one of %s; or use glob", *in.Type, known)}
		}
		ofType, err = filter(names)
	}
	return s, only, ofType, err
}

// fileTypes are the names of files of each language.
func fileTypes() map[string]string {
	return map[string]string{
		"c": "*.{c,h}", "cpp": "*.{cc,cpp,cxx,hh,hpp,hxx,h}", "cs": "*.cs", "css": "*.{css,scss,sass,less}", "docker": "{Dockerfile,Dockerfile.*,*.dockerfile}",
		"go": "*.go", "html": "*.{html,htm}", "java": "*.java", "js": "*.{js,jsx,mjs,cjs,vue}", "json": "*.{json,jsonl,jsonc}", "kotlin": "*.{kt,kts}",
		"lua": "*.lua", "make": "{Makefile,makefile,GNUmakefile,*.mk}", "md": "*.{md,markdown,mdx}", "php": "*.php", "proto": "*.proto", "py": "*.{py,pyi}",
		"ruby": "*.{rb,gemspec,rake}", "rust": "*.rs", "scala": "*.scala", "sh": "*.{sh,bash,zsh}", "sql": "*.sql", "swift": "*.swift", "toml": "*.toml",
		"ts": "*.{ts,tsx,mts,cts}", "txt": "*.txt", "xml": "*.xml", "yaml": "*.{yaml,yml}",
	}
}

// filter reads the pattern that chooses files. One without a slash is for names
// anywhere.
func filter(text string) (*glob.Pattern, error) {
	if text != "" && !strings.Contains(text, "/") {
		text = "**/" + text
	}
	pattern, err := compileGlob("glob", text)
	return &pattern, err
}
