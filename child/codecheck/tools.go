package codecheck

import (
	"regexp"
	"strconv"
	"strings"
	"sync"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// tool is one checker.
type tool struct {
	name    string
	program string
	version []string // arguments that make it say its version; nil if it says none
	// versionFile has its version in its first line, from the directory of the program; "" for none.
	versionFile string
	args        []string // the file comes after them
	file        string   // what the code is called
	env         []string
	// cache is the variable that names the directory of what it keeps; "" for
	// nothing.
	cache string
	// rules begins the argument that asks for rules; "" where it has none, rulesInConfig where config names them.
	rules string
	// config is written to configFile, with the rules for RULES; "" for none.
	config, configFile string
	output             output
	// absent is an expression for errors that are of the place and not of the code; "" for none.
	absent string
	// forms are the two that code of the language may have; nil where it has one. It seems to
	// be in the second where isSecond matches it, and was in the other one where wrongForm
	// matches an error, unless keepFirst and the other one finds errors, too.
	forms               []form
	isSecond, wrongForm string
	keepFirst           bool
	// grammar looks at the grammar alone where an import is missing; nil for none.
	grammar *tool
	// fragments says that it is for Go without a package clause, and for no other code.
	fragments bool
	// before and after stand around the code in the file that is checked, before on the
	// line of the first.
	before, after string
}

// form is what a checker has beside its own for one form of a language.
type form struct {
	file          string
	args          []string
	before, after string
}

// output is how a checker says what it found.
type output int

const (
	worded     output = iota // a line for each fault, with its severity
	lines                    // the same, with or without the severity
	nodeTrace                // the one fault that node tells of
	jsonSyntax               // no checker, but the code itself, which is JSON
	eslintJSON               // eslint's own
)

// rulesInConfig stands for tool.rules where these are no argument.
const rulesInConfig = "config"

// ofServer is the program of the server, which is not looked for on PATH.
const ofServer = "nexus"

var aliases = map[string]string{
	"golang": "go", "py": "python", "python3": "python", "js": "javascript", "node": "javascript", "ts": "typescript",
	"sh": "shell", "bash": "shell", "c++": "cpp", "rs": "rust",
	"yml": "yaml", "sqlite": "sql", "javascriptreact": "jsx", "typescriptreact": "tsx",
}

// languages are the checkers of each language, the most thorough first.
var languages = sync.OnceValue(func() map[string][]tool {
	return map[string][]tool{
		"go": {
			goFragment,
			{
				name: "go vet", program: "go", version: []string{"version"}, args: []string{"vet"}, file: "main.go", cache: "GOCACHE",
				env:    []string{"GO111MODULE=auto", "GOFLAGS=", "GOPROXY=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0", "GOTELEMETRY=off", "GOENV=off"},
				output: lines, grammar: &gofmt,
			},
			gofmt,
		},
		"python": {
			{
				name: "ruff", program: "ruff", version: []string{"--version"}, args: []string{"check", "--isolated", "--no-cache", "--output-format=concise"},
				file: "code.py", output: lines, rules: "--select=",
			},
			{name: "python", program: "python3", version: []string{"--version"}, args: []string{"-I", "-B", "-c", compilePython}, file: "code.py"},
		},
		"javascript": {
			eslint(form{file: "code.cjs"}, form{file: "code.mjs"}),
			{
				name: "node --check", program: "node", version: []string{"--version"}, args: []string{"--check"}, output: nodeTrace,
				forms: []form{{file: "code.cjs"}, {file: "code.mjs"}}, isSecond: moduleWord, wrongForm: anything, keepFirst: true,
			},
		},
		"typescript": {tsc("code.ts")},
		"tsx":        {tsc("code.tsx", "--jsx", "preserve")},
		"jsx":        {tsc("code.jsx", "--jsx", "preserve", "--allowJs"), eslint(form{file: "code.jsx"}, form{file: "code.jsx"})},
		"shell": {
			{
				name: "shellcheck", program: "shellcheck", version: []string{"--version"}, args: []string{"--norc", "--shell=bash", "--format=gcc"},
				file: "code.sh", rules: "--include=",
			},
			{name: "bash -n", program: "bash", version: []string{"--version"}, args: []string{"-n"}, file: "code.sh", output: lines},
			{name: "sh -n", program: "sh", version: []string{"-c", "echo sh"}, args: []string{"-n"}, file: "code.sh", output: lines},
		},
		"c": {
			{name: "gcc", program: "gcc", version: []string{"--version"}, args: cArgs, file: "code.c"},
			{name: "clang", program: "clang", version: []string{"--version"}, args: cArgs, file: "code.c"},
		},
		"cpp": {
			{name: "g++", program: "g++", version: []string{"--version"}, args: cArgs, file: "code.cpp"},
			{name: "clang++", program: "clang++", version: []string{"--version"}, args: cArgs, file: "code.cpp"},
		},
		"rust": {{
			name: "rustc", program: "rustc", version: []string{"--version"}, absent: rustAbsent,
			args:  []string{"--emit=metadata", "--error-format=short", "--edition=2021"},
			forms: []form{{file: "code.rs", args: []string{"--crate-type=lib"}}, {file: "code.rs", args: []string{"--crate-type=bin"}}}, isSecond: rustMain, wrongForm: rustNoMain,
		}},
		"sql": {{
			name: "sqlite", program: "python3", version: []string{"-I", "-B", "-c", "import sqlite3; print('SQLite', sqlite3.sqlite_version)"},
			args: []string{"-I", "-B", "-c", prepareSQL}, file: "code.sql", absent: sqlAbsent,
		}},
		"json": {{name: "json", output: jsonSyntax}},
		"yaml": {{name: "nexus check-yaml", program: ofServer, version: []string{"check-yaml"}, args: []string{"check-yaml"}, file: "code.yaml", output: lines}},
	}
})

// tsc looks at the code in a file of that name.
func tsc(file string, more ...string) tool {
	return tool{
		name: "tsc", program: "tsc", version: []string{"--version"}, file: file, absent: typescriptAbsent,
		args: append([]string{
			"--noEmit", "--pretty", "false", "--skipLibCheck", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler",
			"--moduleDetection", "force",
		}, more...),
	}
}

// goFragment looks at statements, or an expression, and else at declarations. In two blocks no
// statements end the function and begin another one.
var goFragment = tool{
	name: "gofmt", program: "gofmt", versionFile: goVersionFile, args: []string{"-e", "-l"}, output: lines, fragments: true,
	forms:    []form{{file: "main.go", before: "package p; func _() {{", after: "\n}}"}, {file: "main.go", before: "package p; "}},
	isSecond: goDeclaration, wrongForm: anything, keepFirst: true,
}

// goVersionFile is where a Go tree says its version, from its directory bin.
const goVersionFile = "../VERSION"

var gofmt = tool{name: "gofmt", program: "gofmt", versionFile: goVersionFile, args: []string{"-e", "-l"}, file: "main.go", output: lines}

var cArgs = []string{"-fsyntax-only", "-Wall", "-fdiagnostics-color=never"}

// pattern is compiled when it is needed first: a child has these linked, and
// checks no code as a rule.
func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// located is a line of most checkers: file, line, column, severity and words.
// bash says "file: line 3: ", tsc "file(3,5): ".
var located = pattern(`^(?:vet: )?(?:\./|[^\s:(]*/)?([\w.]+)(?:: line |: ?|\()(\d+)(?:[:,](\d+))?\)?: ?(.*)$`)

// severity is it and the rule before the words; trailing the rule after them.
var (
	severity = pattern(`^(fatal error|internal compiler error|error|warning|note|help|info|style)(?:\[(\w+)\])?(?: (TS\d+))?: (.*)$`)
	coded    = pattern(`^([A-Z]{1,4}\d{3,4}) (.*)$`)
	trailing = pattern(`^(.*) \[(-W[\w=+-]+|SC\d+)\]$`)
	// echoed is bash's copy of the line at fault.
	echoed = pattern("^`.*'$")
	// included is a line above a fault in a header: where that is included.
	included = pattern(`^(?:In file included)?\s+from (?:\S*/)?([\w.]+):(\d+)`)
)

// diagnostics reads what the checker says.
func (t tool) diagnostics(text string) []protocol.CodeDiagnostic {
	switch t.output {
	case nodeTrace:
		return nodeDiagnostics(text)
	case jsonSyntax:
		return parseJSON(text)
	case eslintJSON:
		return eslintDiagnostics(text)
	case worded, lines:
	}
	found := readLines(text, t.file, t.output == lines)
	if t.absent != "" {
		found = dropMatching(found, regexp.MustCompile(t.absent))
	}
	return found
}

// readLines reads what checkers say a line for each fault; notes and other lines are passed
// over. Where a line may be plain, without a severity, it is an error. Where not, it says
// from where the next fault, of a header, comes.
func readLines(text, file string, plain bool) []protocol.CodeDiagnostic {
	var found []protocol.CodeDiagnostic
	var from protocol.CodeDiagnostic // where in the code a fault of another file comes from
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if at := included().FindStringSubmatch(line); at != nil && at[1] == file {
			from.Line, _ = strconv.Atoi(at[2]) // digits; too many are unknown
			continue
		}
		at := located().FindStringSubmatch(line)
		if at == nil || plain && at[1] != file {
			continue
		}
		d := protocol.CodeDiagnostic{Severity: "error", Message: at[4]}
		d.Line, _ = strconv.Atoi(at[2])   // digits; too many are unknown
		d.Column, _ = strconv.Atoi(at[3]) // or nothing
		said := severity().FindStringSubmatch(d.Message)
		switch {
		case said != nil && (said[1] == "note" || said[1] == "help"), plain && echoed().MatchString(d.Message):
			continue
		case said != nil:
			if said[1] == "warning" || said[1] == "info" || said[1] == "style" {
				d.Severity = "warning"
			}
			d.Rule, d.Message = said[2]+said[3], said[4]
		case !plain:
			if at[1] == file {
				from = d
			}
			continue
		default:
			if said := coded().FindStringSubmatch(d.Message); said != nil {
				d.Rule, d.Message = said[1], said[2]
			}
		}
		if said := trailing().FindStringSubmatch(d.Message); said != nil {
			d.Message, d.Rule = said[1], said[2]
		}
		if at[1] != file {
			if d.Severity == "warning" {
				continue // of somebody else's code
			}
			d.Line, d.Column, d.Message = from.Line, from.Column, at[1]+": "+d.Message
		}
		from = protocol.CodeDiagnostic{}
		found = append(found, d)
	}
	return found
}

var (
	nodeAt    = pattern(`(?m)^.*code\.[cm]js:(\d+)$`)
	nodeCaret = pattern(`(?m)^( *)\^+$`)
	nodeWords = pattern(`(?m)^SyntaxError(?: \[\w+\])?: (.*)$`)
)

// nodeDiagnostics reads the one fault that node tells of.
func nodeDiagnostics(text string) []protocol.CodeDiagnostic {
	words := nodeWords().FindStringSubmatch(text)
	if words == nil {
		return nil
	}
	d := protocol.CodeDiagnostic{Severity: "error", Message: words[1]}
	if at := nodeAt().FindStringSubmatch(text); at != nil {
		d.Line, _ = strconv.Atoi(at[1]) // digits; too many are unknown
	}
	if caret := nodeCaret().FindStringSubmatch(text); caret != nil {
		d.Column = len(caret[1]) + 1
	}
	return []protocol.CodeDiagnostic{d}
}

var offset = pattern(`offset (\d+)`)

func parseJSON(code string) []protocol.CodeDiagnostic {
	err := strict.Valid([]byte(code))
	if err == nil {
		return nil
	}
	before := code // it ends too early, unless it says where
	if at := offset().FindStringSubmatch(err.Error()); at != nil {
		if n, err := strconv.Atoi(at[1]); err == nil && n <= len(code) {
			before = code[:n]
		}
	}
	return []protocol.CodeDiagnostic{{
		Line: 1 + strings.Count(before, "\n"), Column: len(before) - strings.LastIndexByte(before, '\n'),
		Severity: "error", Message: err.Error(),
	}}
}
