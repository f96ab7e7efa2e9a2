package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file/glob"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
)

const (
	defaultResults = 200
	maxResults     = 1000
	maxShown       = 400       // bytes of a line that an answer shows
	beforeMatch    = 100       // of them before the match, where the line is cut
	maxLine        = 256 << 10 // bytes of a line that are searched at once
)

var searchSpec = tool.Spec{
	Name: "search_text",
	Description: "Search the lines of text files by a regular expression (Go's, RE2), without the files that .gitignore files name. " +
		"The answer has lines of the form file:line:text.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"pattern":{"type":"string","description":"the regular expression, matched with each line"},` +
		`"path":{"type":"string","description":"the file or directory to search, absolute or relative to the working directory, which is the default"},` +
		`"glob":{"type":"string","description":"search only such files: *.go by name, src/**/*.go by path; relative to path"},` +
		`"ignore_case":{"type":"boolean","description":"false by default"},` +
		`"literal":{"type":"boolean","description":"the pattern is no regular expression but a plain text; false by default"},` +
		`"max_results":{"type":"integer","minimum":1,"maximum":1000,"description":"lines wanted at most; 200 by default"}},` +
		`"required":["pattern"],"additionalProperties":false}`),
}

type searchInput struct {
	Pattern    string  `json:"pattern"`
	Path       *string `json:"path"`
	Glob       *string `json:"glob"`
	IgnoreCase *bool   `json:"ignore_case"`
	Literal    *bool   `json:"literal"`
	MaxResults *uint64 `json:"max_results"` // lines
}

func (in searchInput) about() (path, summary string) {
	path = protocol.ValueOr(in.Path, ".")
	return path, fmt.Sprintf("search %s for %s", path, in.Pattern)
}

func (in searchInput) run(ctx context.Context, _ *files, space Space) (tool.Result, error) {
	s := search{lines: bufio.NewReaderSize(nil, maxLine), most: defaultResults}
	if in.MaxResults != nil {
		if *in.MaxResults < 1 || *in.MaxResults > maxResults {
			return tool.Result{}, &strict.Error{Path: "max_results", Problem: fmt.Sprintf("must be between 1 and %d", maxResults)}
		}
		s.most = int(*in.MaxResults)
	}
	var err error
	if s.matcher, err = newMatcher(in.Pattern, protocol.Value(in.Literal), protocol.Value(in.IgnoreCase)); err != nil {
		return tool.Result{}, err
	}
	var only *glob.Pattern
	if in.Glob != nil {
		if only, err = filter(*in.Glob); err != nil {
			return tool.Result{}, err
		}
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
		if !entry.Type().IsRegular() || only != nil && !only.Match(name) {
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

// filter reads the pattern that chooses files. One without a slash is for names
// anywhere.
func filter(text string) (*glob.Pattern, error) {
	if text != "" && !strings.Contains(text, "/") {
		text = "**/" + text
	}
	pattern, err := compileGlob("glob", text)
	return &pattern, err
}

// search is one search under way.
type search struct {
	at      *place
	base    string // how answers name it
	matcher *matcher
	lines   *bufio.Reader // of the file that is being read
	most    int           // lines wanted

	found    strings.Builder
	count    int // lines found
	searched int // files
	binary   int // files passed over
	unread   int // files that could not be read
	more     bool
}

// file searches one file, relative to the place. It returns errEnough when no
// more is wanted.
func (s *search) file(ctx context.Context, name string) error {
	f, _, err := s.at.open(filepath.Join(s.at.name, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is %s", kind(info.Mode()))
	}
	head, err := peek(f)
	if err != nil {
		return err
	}
	e := sniff(head)
	if e == notText {
		s.binary++
		return nil
	}
	s.lines.Reset(e.reader(cancelled{ctx, f}))
	s.searched++
	shownName := shown(path.Join(s.base, name))
	matched := 0 // the last line with a match
	for number, reads := 1, 0; ; reads++ {
		if reads%ctxEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := s.lines.ReadSlice('\n')
		ended := err == nil
		text := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if number == 1 && reads == 0 {
			text = bytes.TrimPrefix(text, []byte(byteMark))
		}
		if len(line) > 0 && matched != number {
			if at := s.matcher.find(ctx, text); at >= 0 {
				matched = number
				if !s.add(fmt.Sprintf("%s:%d:%s\n", shownName, number, excerpt(text, at))) {
					return errEnough
				}
			}
		}
		switch {
		case ended:
			number++
		case errors.Is(err, bufio.ErrBufferFull): // the line goes on
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// add takes a line into the answer, unless that is full.
func (s *search) add(line string) bool {
	if s.count == s.most || s.found.Len()+len(line) > maxRead {
		s.more = true
		return false
	}
	s.count++
	s.found.WriteString(line)
	return true
}

// excerpt is a line, or what is around its match if it is long.
func excerpt(line []byte, at int) string {
	if len(line) <= maxShown {
		return string(line)
	}
	before := textcut.Head(line, at-beforeMatch)
	rest := line[len(before):]
	shown := textcut.Head(rest, maxShown)
	text := string(shown)
	if len(before) > 0 {
		text = "…" + text
	}
	if len(shown) < len(rest) {
		text += "…"
	}
	return text
}

// answer is what was found, and what there is to know about the rest.
func (s *search) answer() string {
	var b strings.Builder
	b.WriteString(s.found.String())
	passed := ""
	if s.binary > 0 {
		passed = fmt.Sprintf(", %d passed over as no text", s.binary)
	}
	switch {
	case s.more:
		fmt.Fprintf(&b, "[there are more than these %d lines; narrow the pattern, path or glob]\n", s.count)
	case s.count == 0:
		fmt.Fprintf(&b, "[no line matches in %d %s%s]\n", s.searched, plural(s.searched, "file"), passed)
	}
	if s.unread > 0 {
		fmt.Fprintf(&b, "[%d %s could not be read]\n", s.unread, plural(s.unread, "file"))
	}
	return b.String()
}
