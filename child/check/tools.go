package check

import (
	"regexp"
	"strconv"
	"strings"

	"nexus.internal/protocol/strict"
)

// tool is one checker.
type tool struct {
	name    string
	program string
	version []string // arguments that make it say its version
	args    []string // the file comes after them
	file    string   // what the code is called
	nameFor func(code string) string
	env     []string
	// cache is the variable that names the directory of what it keeps; "" for
	// nothing.
	cache string
	// withRules are the arguments after args that ask for rules; nil where it has
	// none.
	withRules func(rules []string) []string
	parse     func(text, file string) []Diagnostic
	// builtin checks without a program.
	builtin func(code string) []Diagnostic
}

var aliases = map[string]string{
	"golang": "go", "py": "python", "python3": "python", "js": "javascript", "node": "javascript", "ts": "typescript",
	"sh": "shell", "bash": "shell", "c++": "cpp", "rs": "rust",
}

// languages are the checkers of each language, the most thorough first.
var languages = map[string][]tool{
	"go": {
		{
			name: "go vet", program: "go", version: []string{"version"}, args: []string{"vet"}, file: "main.go", cache: "GOCACHE",
			env:   []string{"GO111MODULE=auto", "GOFLAGS=", "GOPROXY=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0", "GOTELEMETRY=off", "GOENV=off"},
			parse: lines,
		},
		{name: "gofmt", program: "gofmt", version: []string{"-h"}, args: []string{"-e", "-l"}, file: "main.go", parse: lines},
	},
	"python": {
		{
			name: "ruff", program: "ruff", version: []string{"--version"}, args: []string{"check", "--isolated", "--no-cache", "--output-format=concise"},
			file: "code.py", parse: lines,
			withRules: func(rules []string) []string { return []string{"--select=" + strings.Join(rules, ",")} },
		},
		{name: "python", program: "python3", version: []string{"--version"}, args: []string{"-I", "-B", "-c", parsePython}, file: "code.py", parse: lines},
	},
	"javascript": {{
		name: "node --check", program: "node", version: []string{"--version"}, args: []string{"--check"}, nameFor: nameJavaScript, parse: nodeSays,
	}},
	"typescript": {{
		name: "tsc", program: "tsc", version: []string{"--version"}, args: []string{"--noEmit", "--pretty", "false", "--skipLibCheck", "--target", "es2022"},
		file: "code.ts", parse: lines,
	}},
	"shell": {
		{
			name: "shellcheck", program: "shellcheck", version: []string{"--version"}, args: []string{"--norc", "--shell=bash", "--format=gcc"},
			file: "code.sh", parse: lines,
			withRules: func(rules []string) []string { return []string{"--include=" + strings.Join(rules, ",")} },
		},
		{name: "bash -n", program: "bash", version: []string{"--version"}, args: []string{"-n"}, file: "code.sh", parse: lines},
		{name: "sh -n", program: "sh", version: []string{"-c", "echo sh"}, args: []string{"-n"}, file: "code.sh", parse: lines},
	},
	"c": {
		{name: "gcc", program: "gcc", version: []string{"--version"}, args: cArgs, file: "code.c", parse: lines},
		{name: "clang", program: "clang", version: []string{"--version"}, args: cArgs, file: "code.c", parse: lines},
	},
	"cpp": {
		{name: "g++", program: "g++", version: []string{"--version"}, args: cArgs, file: "code.cpp", parse: lines},
		{name: "clang++", program: "clang++", version: []string{"--version"}, args: cArgs, file: "code.cpp", parse: lines},
	},
	"rust": {{
		name: "rustc", program: "rustc", version: []string{"--version"}, file: "code.rs", parse: lines,
		args: []string{"--crate-type=lib", "--emit=metadata", "--error-format=short", "--edition=2021"},
	}},
	"json": {{name: "json", builtin: parseJSON}},
}

var cArgs = []string{"-fsyntax-only", "-Wall", "-fdiagnostics-color=never"}

// parsePython parses a file and says where it cannot, as lines wants it.
const parsePython = `import ast, sys
name = sys.argv[1]
try:
    ast.parse(open(name, "rb").read(), name)
except SyntaxError as e:
    print("%s:%d:%d: error: %s" % (name, e.lineno or 0, e.offset or 0, e.msg))
    sys.exit(1)
except ValueError as e:
    print("%s:0:0: error: %s" % (name, e))
    sys.exit(1)
`

var module = regexp.MustCompile(`(?m)^\s*(import\s*[\w{*"']|export\s)`)

// nameJavaScript tells node which of its two grammars the code is in.
func nameJavaScript(code string) string {
	if module.MatchString(code) {
		return "code.mjs"
	}
	return "code.cjs"
}

// located is a line of most checkers: file, line, column, severity and words.
// bash says "file: line 3: ", tsc "file(3,5): ".
var located = regexp.MustCompile(`^(?:vet: )?(?:\./|[^\s:(]*/)?([\w.]+)(?:: line |: ?|\()(\d+)(?:[:,](\d+))?\)?: ?(.*)$`)

// worded is the severity and the rule before the words; trailing the rule after
// them.
var (
	worded   = regexp.MustCompile(`^(fatal error|error|warning|note|help|info|style)(?:\[(\w+)\])?(?: (TS\d+))?: (.*)$`)
	coded    = regexp.MustCompile(`^([A-Z]{1,4}\d{3,4}) (.*)$`)
	trailing = regexp.MustCompile(`^(.*) \[(-W[\w=+-]+|SC\d+)\]$`)
)

// lines reads what checkers say a line for each fault. Other lines, and notes,
// are passed over.
func lines(text, file string) []Diagnostic {
	var found []Diagnostic
	for line := range strings.Lines(text) {
		at := located.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if at == nil || at[1] != file {
			continue
		}
		d := Diagnostic{Severity: "error", Message: at[4]}
		d.Line, _ = strconv.Atoi(at[2])   // digits; too many are unknown
		d.Column, _ = strconv.Atoi(at[3]) // or nothing
		if said := worded.FindStringSubmatch(d.Message); said != nil {
			switch said[1] {
			case "note", "help":
				continue
			case "warning", "info", "style":
				d.Severity = "warning"
			}
			d.Rule, d.Message = said[2]+said[3], said[4]
		} else if said := coded.FindStringSubmatch(d.Message); said != nil {
			d.Rule, d.Message = said[1], said[2]
		}
		if said := trailing.FindStringSubmatch(d.Message); said != nil {
			d.Message, d.Rule = said[1], said[2]
		}
		found = append(found, d)
	}
	return found
}

var (
	nodeAt    = regexp.MustCompile(`(?m)^.*code\.[cm]js:(\d+)$`)
	nodeCaret = regexp.MustCompile(`(?m)^( *)\^+$`)
	nodeWords = regexp.MustCompile(`(?m)^SyntaxError(?: \[\w+\])?: (.*)$`)
)

// nodeSays reads the one fault that node tells of.
func nodeSays(text, _ string) []Diagnostic {
	words := nodeWords.FindStringSubmatch(text)
	if words == nil {
		return nil
	}
	d := Diagnostic{Severity: "error", Message: words[1]}
	if at := nodeAt.FindStringSubmatch(text); at != nil {
		d.Line, _ = strconv.Atoi(at[1]) // digits; too many are unknown
	}
	if caret := nodeCaret.FindStringSubmatch(text); caret != nil {
		d.Column = len(caret[1]) + 1
	}
	return []Diagnostic{d}
}

var offset = regexp.MustCompile(`offset (\d+)`)

func parseJSON(code string) []Diagnostic {
	err := strict.Valid([]byte(code))
	if err == nil {
		return nil
	}
	d := Diagnostic{Severity: "error", Message: err.Error()}
	if at := offset.FindStringSubmatch(d.Message); at != nil {
		if n, err := strconv.Atoi(at[1]); err == nil && n <= len(code) {
			before := code[:n]
			d.Line = 1 + strings.Count(before, "\n")
			d.Column = len(before) - strings.LastIndexByte(before, '\n')
		}
	}
	return []Diagnostic{d}
}
