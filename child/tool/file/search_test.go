package file_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"nexus.internal/child/tool"
)

// forest puts a tree with rules and links into a room.
func forest(t *testing.T) *room {
	t.Helper()
	r := newRoom(t)
	for name, content := range map[string]string{
		".gitignore":          "*.log\n/build/\nnode_modules/\n!keep.log\n",
		"main.go":             "package main\n\nfunc main() {}\n",
		"a.log":               "func log\n",
		"keep.log":            "func kept\n",
		"build/out.go":        "func built() {}\n",
		"src/a.go":            "package src\r\n\r\nfunc A() {}\r\n",
		"src/größe.ts":        "function größe() {}\n",
		"src/sub/b.tsx":       "FUNC(b)\n",
		"src/sub/.gitignore":  "/generated.*\n",
		"src/sub/generated.x": "func generated\n",
		"src/sub/build/c.go":  "// func\n",
		"src/sub/x.log":       "func\n",
		"src-other/d.go":      "package other\n",
		".github/ci.yml":      "run: func\n",
		".git/config":         "func = git\n",
		"node_modules/m/i.go": "func module() {}\n",
		"picture.go":          "\x89PNG\x00\x00func",
		"a\nb.go":             "func odd\n",
	} {
		r.put(name, content)
	}
	r.must(syscall.Mkfifo(filepath.Join(r.dir, "pipe.go"), 0o666))
	for name, target := range map[string]string{
		"link.go": "main.go", "src/up": "..", "out": r.outside, "rel": "../outside", "secret.go": "../outside/secret.txt",
		"linked": "src/sub", "src/.gitignore": "../../outside/secret.txt",
	} {
		r.must(os.Symlink(target, filepath.Join(r.dir, name)))
	}
	return r
}

func TestGlob(t *testing.T) {
	r := forest(t)
	for _, tt := range []struct {
		want    string
		members []any
	}{
		{"\"a\\nb.go\"\nlink.go\nmain.go\npicture.go\npipe.go\nsecret.go\n", []any{"pattern", "*.go"}},
		{"main.go\nsrc/a.go\nsrc/sub/build/c.go\nsrc-other/d.go\n", []any{"pattern", "**/{main,[acd]}.go", "path", "."}},
		{"src/größe.ts\nsrc/sub/b.tsx\n", []any{"pattern", "**/*.{ts,tsx}"}},
		{"src/größe.ts\nsrc/sub/b.tsx\n", []any{"pattern", "./src/**/*.ts*"}},
		{"src/größe.ts\nsrc/sub/b.tsx\n", []any{"pattern", r.dir + "/**/*.{ts,tsx}"}},
		{"src/a.go\nsrc/sub/build/c.go\n", []any{"pattern", "**/*.go", "path", "src"}},
		{"src/sub/build/c.go\n", []any{"pattern", "sub/**/*.go", "path", filepath.Join(r.dir, "src")}},
		{"keep.log\n", []any{"pattern", "**/*.log"}},
		{".github/ci.yml\n", []any{"pattern", ".github/**"}},
		{"src/\nsrc/sub/\nsrc/sub/build/\n", []any{"pattern", "{src,src/**}/"}},
		{"src/sub/build/\n", []any{"pattern", r.dir + "/**/build/"}},
		{"node_modules/m/i.go\n", []any{"pattern", "**", "path", "node_modules"}},
		{"src/sub/.gitignore\nsrc/sub/b.tsx\nsrc/sub/build/c.go\n", []any{"pattern", "**", "path", "linked"}},
		{"[nothing matches, but for what .gitignore files name]\n", []any{"pattern", "node_modules/**"}},
		{"[nothing matches, but for what .gitignore files name]\n", []any{"pattern", ".git/*"}},
		{"[nothing matches, but for what .gitignore files name]\n", []any{"pattern", "out/*"}},
		{"!glob main.go: it is not a directory", []any{"pattern", "*", "path", "main.go"}},
		{"!glob none: there is no such file or directory", []any{"pattern", "*", "path", "none"}},
		{"!out is outside the working directory", []any{"pattern", "*", "path", "out"}},
		{"!rel is outside the working directory", []any{"pattern", "*", "path", "rel"}},
		{"!.. is outside the working directory", []any{"pattern", "*", "path", ".."}},
		{"!src/../../outside is outside the working directory", []any{"pattern", "*", "path", "src/../../outside"}},
		{"!/etc is outside the working directory", []any{"pattern", "*", "path", "/etc"}},
		{`!member "pattern" must be relative to path, or lie in it`, []any{"pattern", "/etc/*"}},
		{`!member "pattern" must be relative to path, or lie in it`, []any{"pattern", "/etc/*", "path", "src"}},
		{`!member "pattern" must not contain ".."`, []any{"pattern", "../*"}},
		{`!member "pattern" must not contain ".."`, []any{"pattern", "src/../*"}},
		{`!member "pattern" is empty`, []any{"pattern", ""}},
		{`!member "pattern" cannot be used: "[a" is not a valid pattern`, []any{"pattern", "[a"}},
		{`!member "path" is empty`, []any{"pattern", "*", "path", ""}},
		{`!member "pattern" is missing`, nil},
	} {
		r.want(tt.want, "glob", tt.members...)
	}
	for i := range 1001 {
		r.put(fmt.Sprintf("many/%04d", i), "")
	}
	text, err := r.run("glob", "pattern", "many/*")
	r.must(err)
	if lines := strings.Count(text, "\n"); lines != 1001 || !strings.HasSuffix(text, "0999\n[there are more than these 1000; the rest is left out]\n") {
		t.Errorf("%d lines that end in %q", lines, text[len(text)-100:])
	}
	long := strings.Repeat("x", 250)
	for i := range 300 {
		r.put(fmt.Sprintf("wide/%s%03d", long, i), "")
	}
	if text, err := r.run("glob", "pattern", "wide/*"); err != nil || len(text) > 64<<10 || !strings.Contains(text, "[there are more") {
		t.Errorf("%d bytes of wide names, error %v", len(text), err)
	}
}

// Lines around matches, counts, files of a language, and matches of several lines.
func TestSearchAround(t *testing.T) {
	r := newRoom(t)
	r.put("a.go", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n")
	r.put("b.py", "two\r\nother\r\ntwo")
	r.put("c.tsx", "func (\n\ta int,\n) {\n}\nfunc ()\n")
	r.put("Makefile", "two:\n")
	r.put("long.txt", strings.Repeat("x", 300<<10)+"two\nnear\n")
	for _, tt := range []struct {
		want    string
		members []any
	}{
		{"a.go-1-one\na.go:2:two\na.go-3-three\n--\nb.py:1:two\nb.py-2-other\nb.py:3:two\n", []any{"pattern", "^two$", "context", 1, "glob", "*.{go,py}"}},
		{"a.go-2-two\na.go-3-three\na.go:4:four\na.go:5:five\na.go-6-six\n--\na.go-8-eight\na.go-9-nine\na.go:10:ten\n", []any{"pattern", "^(four|five|ten)$", "before", 2, "after", 1}},
		{"a.go:4:four\na.go-5-five\na.go:6:six\na.go-7-seven\n[there are more than these 2 lines; narrow the pattern, path or glob]\n", []any{"pattern", "^(four|six|ten)$", "after", 1, "max_results", 2}},
		{"long.txt:1:…" + strings.Repeat("x", 101) + "two\nlong.txt-2-near\n", []any{"pattern", "xtwo", "after", 1}},
		{"a.go\nb.py\n", []any{"pattern", "two", "output", "files", "glob", "?.*"}},
		{"Makefile\n[there are more than these 1 files; narrow the pattern, path or glob]\n", []any{"pattern", "two", "output", "files", "max_results", 1}},
		{"a.go:1\nb.py:2\n[3 lines in 2 of 3 files]\n", []any{"pattern", "two", "output", "counts", "glob", "?.*"}},
		{"b.py:1:two\nb.py:3:two\n", []any{"pattern", "two", "type", "py"}},
		{"Makefile:1:two:\n", []any{"pattern", "two", "type", "make"}},
		{"c.tsx:1:func (\nc.tsx:2:\ta int,\nc.tsx:3:) {\n", []any{"pattern", `func \([^)]*\n\) \{`, "multiline", true}},
		{"c.tsx:1:func (\nc.tsx:2:\ta int,\nc.tsx:3:) {\nc.tsx-4-}\nc.tsx:5:func ()\n", []any{"pattern", `func \([^)]*\)`, "multiline", true, "after", 1, "type", "ts"}},
		{"b.py-1-two\nb.py:2:other\nb.py:3:two\n", []any{"pattern", `^other$\n^two$`, "multiline", true, "context", 1, "type", "py"}},
		{"c.tsx:4\n[4 lines in 1 of 1 files]\n", []any{"pattern", `func \([^)]*\)`, "multiline", true, "output", "counts", "path", "c.tsx"}},
		{"[no line matches in 1 file]\n", []any{"pattern", "nothing", "multiline", true, "path", "a.go"}},
		{`!member "output" is "names", want lines, files or counts`, []any{"pattern", "a", "output", "names"}},
		{`!member "context" must be between 0 and 50`, []any{"pattern", "a", "context", 51}},
		{`!member "after" must be between 0 and 50`, []any{"pattern", "a", "after", 51}},
	} {
		r.want(tt.want, "search_text", tt.members...)
	}
	if _, err := r.run("search_text", "pattern", "a", "type", "cobol"); err == nil || !strings.Contains(err.Error(), `member "type" is "cobol", want one of c, cpp, cs`) {
		t.Errorf("got %v", err)
	}
	r.put("huge.txt", strings.Repeat("two\n", 2<<20))
	r.want("[no line matches in 0 files]\n[1 file of more than 4 MiB left out, as multiline reads files as a whole]\n", "search_text", "pattern", "two", "multiline", true, "path", "huge.txt")
}

// What a line is found by is found in the whole text as well, whatever the text.
func FuzzSearchWhole(f *testing.F) {
	for _, s := range []string{"a\nb\na", "\r\na\r\n\r\n", "", "a", "\n\n", "é\na\xff"} {
		f.Add(s, "a", uint8(1), uint8(2))
	}
	f.Fuzz(func(t *testing.T, text, pattern string, before, after uint8) {
		if pattern == "" || len(pattern) > 1000 || !utf8.ValidString(pattern) || strings.ContainsAny(pattern, "\r\n") || strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), "\r") {
			return
		}
		r := newRoom(t)
		r.put("f", text)
		members := []any{"pattern", pattern, "literal", true, "path", "f", "before", before % 51, "after", after % 51}
		line, lineErr := r.run("search_text", members...)
		whole, wholeErr := r.run("search_text", append(members, "multiline", true)...)
		if line != whole || fmt.Sprint(lineErr) != fmt.Sprint(wholeErr) {
			t.Errorf("by line %q, %v; as a whole %q, %v", line, lineErr, whole, wholeErr)
		}
	})
}

func TestSearch(t *testing.T) {
	r := forest(t)
	for _, tt := range []struct {
		want    string
		members []any
	}{
		{".github/ci.yml:1:run: func\n\"a\\nb.go\":1:func odd\nkeep.log:1:func kept\nmain.go:3:func main() {}\n" +
			"src/a.go:3:func A() {}\nsrc/größe.ts:1:function größe() {}\nsrc/sub/build/c.go:1:// func\n", []any{"pattern", "func"}},
		{"src/a.go:3:func A() {}\nsrc/sub/build/c.go:1:// func\n", []any{"pattern", "func", "glob", "*.go", "path", "src"}},
		{"src/sub/build/c.go:1:// func\n", []any{"pattern", "func", "glob", "src/*/**"}},
		{"src/sub/b.tsx:1:FUNC(b)\n", []any{"pattern", "Func(B)", "ignore_case", true, "literal", true}},
		{"src/a.go:3:func A() {}\n", []any{"pattern", `^func \w+\(\) \{\}$`, "path", "src"}},
		{"build/out.go:1:func built() {}\n", []any{"pattern", "func", "path", "build"}},
		{"a.log:1:func log\n", []any{"pattern", "func", "path", "a.log"}},
		{"main.go:3:func main() {}\n", []any{"pattern", "func", "path", "link.go"}},
		{".github/ci.yml:1:run: func\n[there are more than these 1 lines; narrow the pattern, path or glob]\n", []any{"pattern", "func", "max_results", 1}},
		{"[no line matches in 11 files, 1 passed over as no text]\n", []any{"pattern", "secret"}},
		{"[no line matches in 0 files, 1 passed over as no text]\n", []any{"pattern", "func", "path", "picture.go"}},
		{"[no line matches in 1 file]\n", []any{"pattern", "x{2}", "path", "main.go"}},
		{"!search pipe.go: it is a named pipe", []any{"pattern", "func", "path", "pipe.go"}},
		{"!search none: there is no such file or directory", []any{"pattern", "func", "path", "none"}},
		{"!secret.go is outside the working directory", []any{"pattern", "func", "path", "secret.go"}},
		{"!out is outside the working directory", []any{"pattern", "func", "path", "out"}},
		{"!../outside is outside the working directory", []any{"pattern", "func", "path", "../outside"}},
		{"!/etc/passwd is outside the working directory", []any{"pattern", "root", "path", "/etc/passwd"}},
		{`!member "pattern" is empty`, []any{"pattern", ""}},
		{"!member \"pattern\" is no regular expression of Go: error parsing regexp: missing closing ): `(`", []any{"pattern", "("}},
		{`!member "pattern" is too large: it repeats too much`, []any{"pattern", strings.Repeat(".{1000}", 21)}},
		{`!member "pattern" has more than 1024 bytes`, []any{"pattern", strings.Repeat("a", 1025)}},
		{`!member "max_results" must be between 1 and 1000`, []any{"pattern", "a", "max_results", 0}},
		{`!member "max_results" must be between 1 and 1000`, []any{"pattern", "a", "max_results", 1001}},
		{`!member "glob" is empty`, []any{"pattern", "a", "glob", ""}},
		{`!member "glob" must not contain ".."`, []any{"pattern", "a", "glob", "../*"}},
		{`!member "glob" cannot be used: a "{" has no "}"`, []any{"pattern", "a", "glob", "{a"}},
	} {
		r.want(tt.want, "search_text", tt.members...)
	}
}

// Long lines, and many of them, cost a bounded answer.
func TestSearchHuge(t *testing.T) {
	r := newRoom(t)
	r.put("long", "\uFEFFstart"+strings.Repeat("ä", 1000)+"needle"+strings.Repeat("ö", 1000)+"\n"+
		strings.Repeat("x", 600<<10)+"needle\nlast needle\n")
	want := "long:1:…" + strings.Repeat("ä", 50) + "needle" + strings.Repeat("ö", 147) + "…\n" +
		"long:2:…" + strings.Repeat("x", 100) + "needle\nlong:3:last needle\n"
	r.want(want, "search_text", "pattern", "needle")
	r.want("long:1:start"+strings.Repeat("ä", 197)+"…\n", "search_text", "pattern", "^start")
	// Not UTF-8 where nobody looked.
	r.put("odd", strings.Repeat("a", 10_000)+strings.Repeat("\x80", 10_000)+"needle"+strings.Repeat("\x80", 1000))
	text, err := r.run("search_text", "pattern", "needle", "path", "odd")
	if err != nil || !strings.Contains(text, "needle") || len(text) > 500 {
		t.Errorf("text %q, error %v", text, err)
	}
	r.put("many", strings.Repeat("needle "+strings.Repeat("z", 200)+"\n", 1000))
	text, err = r.run("search_text", "pattern", "needle", "path", "many", "max_results", 1000)
	if err != nil || len(text) > 64<<10 || !strings.HasSuffix(text, "lines; narrow the pattern, path or glob]\n") {
		t.Errorf("%d bytes, error %v", len(text), err)
	}
}

// The pattern that takes the longest with the longest line there is ends with
// its context: to be through would take it minutes.
func TestSearchAborted(t *testing.T) {
	r := newRoom(t)
	r.put("long", strings.Repeat("a", 1<<20))
	r.put("lines", strings.Repeat("a\n", 1<<20))
	var ctx context.Context
	for _, input := range []string{
		`{"pattern":"` + strings.Repeat("(x|a?){900}", 3) + `b"}`, `{"pattern":"` + strings.Repeat("(x|a?\\n?){600}", 3) + `b","multiline":true}`,
		`{"pattern":"a([\\s\\S]*z)?","multiline":true,"output":"counts","path":"lines"}`, // each match looks to the end
	} {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := r.tools["search_text"].Run(ctx, tool.Call{Input: []byte(input)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("search: error %v", err)
		}
	}
	for name, input := range map[string]string{"glob": `{"pattern":"**"}`, "search_text": `{"pattern":"b"}`} {
		if _, err := r.tools[name].Run(ctx, tool.Call{Input: []byte(input)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s after the end: error %v", name, err)
		}
	}
}

// A tree deeper than the bound is looked at down to it, and that is said.
func TestDeepTree(t *testing.T) {
	r := newRoom(t)
	r.must(os.MkdirAll(filepath.Join(r.dir, strings.Repeat("d/", 205)), 0o777))
	r.put(strings.Repeat("d/", 10)+"x", "found")
	r.put(strings.Repeat("d/", 204)+"x", "not found")
	r.want(strings.Repeat("d/", 10)+"x:1:found\n[the tree is too large or too deep to be looked at whole; ask for a part of it]\n",
		"search_text", "pattern", "found")
	r.want(strings.Repeat("d/", 204)+"x\n", "glob", "pattern", "**", "path", strings.Repeat("d/", 203))
}
