package glob_test

import (
	"fmt"
	"strings"
	"testing"

	"nexus.internal/child/tool/file/glob"
)

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern string
		yes, no string // paths, with space between
	}{
		{"*.go", "a.go .go größe.go", "a.goo a/b.go go"},
		{"**/*.go", "a.go a/b.go a/b/c.go .x/y.go", "a.txt a.go/b"},
		{"a/**", "a/b a/b/c", "a ab/c b/a"},
		{"**", "a a/b", ""},
		{"a/**/b", "a/b a/x/b a/x/y/b", "ab a/xb a/b/c"},
		{"**/a/**/b/*.x", "a/b/1.x q/a/b/b/1.x a/c/b/d/b/1.x", "a/1.x b/a/1.x"},
		{"a?c", "abc aäc", "ac abbc a/c"},
		{"[a-c]x", "ax cx", "dx -x"},
		{"[!a-c]x", "dx äx", "ax"},
		{"[]a]x", "]x ax", "bx"},
		{"[a-]x", "ax -x", "bx"},
		{"[-a]x", "ax -x", "bx"},
		{"[a-z0-9-_]x", "-x _x qx 5x", "Ax"},
		{"[[:digit:]a]x", "0x ax", "bx :x dx"},
		{"[[:punct:]]x", "!x /x [x ]x ~x", "ax"},
		{`\*`, "*", "a"},
		{`[\]]x`, "]x", `\x`},
		{"*.{ts,tsx}", "a.ts a.tsx", "a.t a.{ts,tsx}"},
		{"{a,b{c,d}}/{1,}x", "a/1x a/x bc/x bd/1x", "b/x c/x"},
		{"{a}", "a", "{a}"},
		{"[{]x", "{x", "x"},
		{`\{a,b}`, "{a,b}", "a b"},
		{"{a/b,c}/d", "a/b/d c/d", "b/d"},
	} {
		p, err := glob.Compile(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		for _, path := range strings.Fields(tt.yes) {
			if path != "/x" && !p.Match(path) {
				t.Errorf("%s does not match %s", tt.pattern, path)
			}
		}
		for _, path := range strings.Fields(tt.no) {
			if p.Match(path) {
				t.Errorf("%s matches %s", tt.pattern, path)
			}
		}
	}
}

func TestBelow(t *testing.T) {
	for _, tt := range []struct {
		pattern, yes, no string
	}{
		{"*.go", "", "a a.go"},
		{"src/*.go", "src", "a src/b"},
		{"src/**/*.go", "src src/b src/b/c", "a"},
		{"*/b/{c,d}/*", "x x/b x/b/c", "x/c x/b/e x/b/c/d"},
		{"**", "a a/b", ""},
		{"a/**", "a a/b", "b"},
	} {
		p, err := glob.Compile(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range strings.Fields(tt.yes) {
			if !p.Below(dir) {
				t.Errorf("nothing of %s is below %s", tt.pattern, dir)
			}
		}
		for _, dir := range strings.Fields(tt.no) {
			if p.Below(dir) {
				t.Errorf("something of %s is below %s", tt.pattern, dir)
			}
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for pattern, want := range map[string]string{
		"a/[b":                       `"[b" is not a valid pattern`,
		"{a,b":                       `a "{" has no "}"`,
		"{[a,b}":                     `a "[" has no "]"`,
		`a\`:                         `"a\\" is not a valid pattern`,
		strings.Repeat("{a,b}", 9):   "its braces stand for more than 256 patterns",
		strings.Repeat("{a,b}", 100): "its braces stand for more than 256 patterns",
		strings.Repeat("a", 1025):    "it has more than 1024 bytes",
	} {
		if _, err := glob.Compile(pattern); err == nil || err.Error() != want {
			t.Errorf("%.30s: error %v, want %s", pattern, err, want)
		}
	}
}

// Where a matcher goes back to every star, this takes longer than the universe
// has.
func TestNoWedge(t *testing.T) {
	p, err := glob.Compile(strings.Repeat("**/*a*/", 100) + "b")
	if err != nil {
		t.Fatal(err)
	}
	if p.Match(strings.Repeat(strings.Repeat("a", 200)+"/", 200) + "c") {
		t.Error("it matches")
	}
}

func TestRules(t *testing.T) {
	for _, tt := range []struct {
		text    string
		ignored string // paths, with space between; a directory ends in "/"
		kept    string
	}{
		{"*.log", "a.log x/y.log a.log/", "a.logs"},
		{"/a", "a a/", "x/a"},
		{"a/", "a/ x/a/", "a x/a"},
		{"x/a", "x/a", "a y/x/a"},
		{"x/*.c", "x/a.c", "x/y/a.c a.c"},
		{"**/a/b", "a/b x/y/a/b", "b a/x/b"},
		{"a/**", "a/b a/b/c a/d/", "a/ x/a/b"},
		{"a/**/b", "a/b a/x/y/b", "a/bc"},
		{"**", "a x/y", ""},
		{"*\n!keep", "a x/a", "keep x/keep"},
		{"!keep\n*", "keep", ""},
		{"*.a\n!b.a\n/b.a", "b.a c.a", "x/b.a"},
		{"# comment\n\n  \n!\n/\n", "", "# comment a"},
		{"\\#a\n\\!b\nc\\ \nd  ", "#a !b d", "a b c"},
		{"a\r\nb\r\n", "a b", "c"},
		{"\uFEFFa", "a", "b"},
		{"[b\na", "a", "[b b"},
		{"{a,b}", "{a,b}", "a b"},
		{"[[:upper:]]*", "Abc x/B", "abc"},
		{"[!a]x", "bx", "ax"},
		{"foo*bar/*", "fooxbar/a", "foo/bar/a fooxbar"},
		{strings.Repeat("a", 2000), "", strings.Repeat("a", 2000)},
	} {
		rules := glob.ParseRules(tt.text)
		for _, list := range []struct {
			paths string
			want  bool
		}{{tt.ignored, true}, {tt.kept, false}} {
			for _, path := range strings.Fields(list.paths) {
				name, isDir := strings.CutSuffix(path, "/")
				if got, _ := rules.Match(name, isDir); got != list.want {
					t.Errorf("%q: %s ignored %v, want %v", tt.text, path, got, list.want)
				}
			}
		}
	}
	if ignored, decided := glob.ParseRules("!a").Match("a", false); ignored || !decided {
		t.Errorf("a rule that keeps: ignored %v, decided %v", ignored, decided)
	}
	if _, decided := glob.ParseRules("!a").Match("b", false); decided {
		t.Error("a rule decides on what it does not match")
	}
}

// What compiles matches in bounded time and without a panic; a pattern that is
// quoted matches its own text alone; and a match is only where Below leads.
func FuzzPattern(f *testing.F) {
	for _, seed := range []string{"**/*.{go,mod}", "[!a-]/[]x]*", `a\[b/{c,{d}}`, "[[:digit:]-z]", "{", "[", `\`} {
		f.Add(seed, "a/b.go")
	}
	quote := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "{", `\{`, "}", `\}`, ",", `\,`)
	f.Fuzz(func(t *testing.T, pattern, path string) {
		glob.ParseRules(pattern).Match(path, true)
		if p, err := glob.Compile(pattern); err == nil && p.Match(path) {
			for i, c := range path {
				if c == '/' && !p.Below(path[:i]) {
					t.Errorf("%q matches %q, but nothing is below %q", pattern, path, path[:i])
				}
			}
		}
		if p, err := glob.Compile(quote.Replace(path)); err == nil && (!p.Match(path) || p.Match(path+"x")) {
			t.Errorf("%q quoted does not match itself alone", path)
		}
	})
}

func ExampleCompile() {
	p, err := glob.Compile("src/**/*.{ts,tsx}")
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Match("src/a/b.ts"), p.Match("src/c.tsx"), p.Match("d.ts"), p.Below("docs"))
	// Output: true true false false
}

func ExampleParseRules() {
	rules := glob.ParseRules("*.log\n!keep.log\n/build/\n")
	for _, name := range []string{"a.log", "keep.log", "build"} {
		ignored, _ := rules.Match(name, name == "build")
		fmt.Println(name, ignored)
	}
	// Output:
	// a.log true
	// keep.log false
	// build true
}
