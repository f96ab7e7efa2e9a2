package foreign

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol/rights"
)

const (
	// MaxPaths is how many paths a question may name.
	MaxPaths = 100
	// maxDepth is how deep the input of a question may be nested, and maxTexts how many values and names of members it may have.
	maxDepth, maxTexts = 10, 10_000
	// maxPath bounds a path, in bytes, once it is clean: PATH_MAX of Linux.
	maxPath = 4 << 10
)

// Names are what a question names, as nexus cannot know on which of it the program acts.
type Names struct {
	// Paths are those that are given, those in members whose name says so, and every other text that is a path as a whole; in
	// patches, those of their files.
	Paths []string
	// Known says that some of them are given, or named by a member: a text alone does not say that the call is about a file.
	Known bool
	// Hosts are those of URLs.
	Hosts []string
	// Command says that there is a command, or may be one in what is not looked through. Edit does not count.
	Command bool
	// Edit is the member "command" of the input where that is, beside a path, a word by which a well-known tool for files tells apart what it does.
	Edit string
	// Unclear says that there is more than can be looked through, or something that may lead elsewhere ([elsewhere]): the rest is not whole then.
	Unclear bool
}

// NamesOf are what the inputs of a question's call name, and the given paths. The texts of members with the names of contents, in small
// letters and of one alone, name nothing.
func NamesOf(contents, given []string, inputs ...gjson.Result) Names {
	s := search{contents: contents}
	for _, p := range given {
		s.add(p)
		s.names.Known = s.names.Known || p != ""
	}
	for _, input := range inputs {
		if !input.IsObject() {
			s.bare(input)
		}
		s.value("", input, false, 0)
	}
	s.names.Unclear = s.names.Unclear || len(s.names.Paths) > MaxPaths
	if s.names.Edit != "" && !s.names.Known {
		s.names.Edit, s.names.Command = "", true
	}
	return s.names
}

// search looks through an input.
type search struct {
	contents []string
	names    Names
	texts    int
	over     bool // there is more than can be looked through
}

// add takes a path, as it is and as programs clean it.
func (s *search) add(p string) {
	s.path(p)
	if p := stripped(p); p != "" {
		s.path(p)
	}
}

func (s *search) path(p string) {
	if rest, uri := strings.CutPrefix(p, "file:///"); uri && !strings.Contains(rest, "%") {
		p = "/" + rest
	}
	if elsewhere().MatchString(p) || len(p) > maxPath || strings.HasPrefix(p, "~") && p != "~" && !strings.HasPrefix(p, "~/") {
		s.names.Unclear = true
	}
	// What is behind ".." is another file for who reads the path as a text than for the kernel, if a link is before it.
	for _, p := range []string{p, cleaned(p)} {
		if p != "" && !slices.Contains(s.names.Paths, p) && len(s.names.Paths) <= MaxPaths {
			s.names.Paths = append(s.names.Paths, p)
		}
	}
}

func cleaned(p string) string {
	if !hasDotDot(p) || strings.HasPrefix(p, "~") {
		return p
	}
	return path.Clean(p)
}

// bare takes an input that is no object: its texts are paths, or say something that is not understood.
func (s *search) bare(input gjson.Result) {
	texts := []gjson.Result{input}
	if input.IsArray() {
		texts = input.Array()
	}
	for _, v := range texts[:min(len(texts), maxTexts)] {
		switch text := stripped(v.Str); {
		case v.Type != gjson.String || wholePath(text) != "" || s.patch(v.Str):
		case strings.ContainsFunc(text, unicode.IsSpace): // as in a command
			s.names.Unclear, s.names.Command = true, true
		default:
			s.add(text)
		}
	}
}

// value takes a value. named says that its texts are paths by the name of a member.
func (s *search) value(name string, v gjson.Result, named bool, depth int) {
	s.texts++
	if depth > maxDepth || s.texts > maxTexts {
		s.over, s.names.Unclear, s.names.Command = true, true, true
		return
	}
	if v.Type == gjson.String {
		s.text(name, v.Str, named, depth)
		return
	}
	if !v.IsArray() && !v.IsObject() {
		return
	}
	v.ForEach(func(key, inner gjson.Result) bool {
		if v.IsArray() {
			s.value(name, inner, named, depth+1)
			return !s.over
		}
		if p := wholePath(key.Str); p != "" {
			s.add(p)
		}
		member := strings.TrimSuffix(strings.ToLower(key.Str), "s")
		switch {
		case !namesCommand(member) || inner.Type == gjson.Null || inner.Raw == `""` || inner.Raw == "[]":
		case depth == 0 && key.Str == "command" && s.names.Edit == "" && slices.Contains(edits, inner.Str):
			s.names.Edit = inner.Str
		default:
			s.names.Command = true
		}
		s.value(member, inner, namesPath(member), depth+1)
		return !s.over // a command behind what is unclear counts
	})
}

// text takes a text of the member of that name, in small letters and of one alone.
func (s *search) text(name, text string, named bool, depth int) {
	if slices.Contains(s.contents, name) {
		return
	}
	if named && text != "" {
		s.add(text)
		s.names.Known = true
	}
	whole := wholePath(text)
	trimmed := stripped(text)
	switch {
	case whole != "":
		s.add(whole)
	case mayNamePath(name) && len(trimmed) <= maxPath && !strings.Contains(trimmed, "\n"):
		s.add(trimmed)
	}
	switch {
	case named:
	case strings.HasSuffix(name, "url") && trimmed != "", uri().MatchString(trimmed):
		s.url(trimmed)
	case variable().MatchString(trimmed):
		s.names.Unclear = true
	case mayBeGlob(name) && leadsElsewhere(trimmed):
		s.names.Unclear = true
	case mayBeJSON(name) && strings.ContainsAny(trimmed[:min(1, len(trimmed))], "{[") && gjson.Valid(trimmed):
		s.value("", gjson.Parse(trimmed), false, depth+1)
	}
	_ = s.patch(text)
}

func (s *search) url(text string) {
	if strings.HasPrefix(text, "file:///") {
		s.add(text)
		return
	}
	at, err := url.Parse(text)
	if err != nil || at.Hostname() == "" || at.Scheme != "http" && at.Scheme != "https" {
		s.names.Unclear = true
		return
	}
	if host := rights.HostOf(at); !slices.Contains(s.names.Hosts, host) {
		s.names.Hosts = append(s.names.Hosts, host)
	}
}

// wholePath is a text that as a whole is a path which may lead out of a directory: one that is absolute, begins with ~ or has a segment `..`; "" for any
// other. It is one line and has at most maxPath bytes, once it is clean, since programs clean paths.
func wholePath(text string) string {
	p := stripped(text)
	if !strings.HasPrefix(p, "/") && !strings.HasPrefix(p, "~") && !hasDotDot(p) {
		return ""
	}
	clean := path.Clean(p)
	if len(clean) > maxPath || strings.ContainsAny(clean, "\r\n") {
		return ""
	}
	// "// a comment", "~ 5": no path that exists.
	if head := strings.TrimLeft(clean, "/~"); head != clean && head != "" && strings.ContainsAny(head[:1], " \t") {
		return ""
	}
	return p
}

// stripped is a text without what programs take off a path: quotes, white space of any kind, and characters that are not seen.
func stripped(text string) string {
	return strings.TrimFunc(text, func(r rune) bool { return unseen(r) || strings.ContainsRune("\"'`", r) })
}

func unseen(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}

func hasDotDot(p string) bool {
	return p == ".." || strings.HasPrefix(p, "../") || strings.HasSuffix(p, "/..") || strings.Contains(p, "/../")
}

// The patterns are made when they are needed first.
var (
	// elsewhere matches what a program may take for another path than nexus does: a URI, whose escapes and host it decodes, and what begins with a
	// variable.
	elsewhere = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^(\$|file:|[a-z][a-z0-9+.-]*:/)`) })
	// uri matches a text that as a whole is a URI, and variable one that is a path behind a variable.
	uri      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^([a-z][a-z0-9+.-]*://|file:/)\S*$`) })
	variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\$(\w+|\{\w+\})(/\S*)?$`) })
	// leadsOut matches a pattern of files that may look elsewhere than below its path: from the root, a home or a directory above, also as one of several.
	leadsOut = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|[{(,|])[/~$]|(^|[{(,|/])\.\.($|[/}),|])`) })
)

// namesPath reports whether a member of an input is a path by its name, in small letters and of one alone, as file_path, absolutepath, dir.
func namesPath(name string) bool {
	return strings.HasSuffix(name, "path") || strings.HasSuffix(name, "_file") || slices.Contains([]string{
		"cwd", "dir", "directory", "directorie", "file", "filename", "file_name", "folder", "uri", "infile", "outfile", "sourcefile", "targetfile", "destfile",
	}, name)
}

// edits are the commands of a well-known tool for files, which its member "command" tells apart.
var edits = []string{"view", "create", "str_replace", "insert", "undo_edit"}

// namesCommand reports whether a member is a command by its name, in small letters and of one alone.
func namesCommand(name string) bool {
	return slices.Contains([]string{"command", "cmd", "script"}, name)
}

// mayNamePath reports whether a member is often a path, which may be one below the directory that a link leads out of.
func mayNamePath(name string) bool {
	return slices.Contains([]string{"from", "to", "src", "source", "dest", "destination", "target"}, name)
}

func mayBeGlob(name string) bool {
	return slices.Contains([]string{"glob", "pattern", "include", "exclude"}, name)
}

func mayBeJSON(name string) bool {
	return slices.Contains([]string{"arg", "argument", "input", "param", "parameter"}, name)
}
