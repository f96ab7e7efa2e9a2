package check

import (
	"regexp"
	"slices"
	"strings"
)

// notChecked is the rule of a warning that something outside the code is not
// here, and so what depends on it was not looked at.
const notChecked = "not-checked"

// setAside makes warnings of the faults that are of the place and not of the code:
// those whose words match.
func setAside(found []Diagnostic, words *regexp.Regexp) []Diagnostic {
	for i, d := range found {
		if d.Severity == "error" && words.MatchString(d.Rule+" "+d.Message) {
			found[i].Severity, found[i].Rule = "warning", notChecked
			found[i].Message = strings.TrimSuffix(strings.TrimSuffix(d.Message, " in any of:"), ".") + ": what depends on it was not checked"
		}
	}
	return found
}

// hasErrors reports whether one of them is more than a warning.
func hasErrors(found []Diagnostic) bool {
	return slices.ContainsFunc(found, func(d Diagnostic) bool { return d.Severity == "error" })
}

var (
	// goAbsent is an import that was not found. It may be elsewhere if its path has
	// a host, or begins with no directory of the standard library.
	goAbsent = pattern(`(?:cannot find package "|no required module provides package |package )([^\s":;/]+)(/[^\s":;]+)?`)
	goStd    = pattern(`^(?:archive|compress|container|crypto|database|debug|encoding|go|hash|html|image|index|internal|io|iter|log|math|` +
		`mime|net|os|path|regexp|runtime|sync|testing|text|time|unicode)$`)
	goEmbed    = pattern(`^pattern .*: no matching files found`)
	goExcluded = pattern(`build constraints exclude all Go files`)
	goCgo      = pattern(`(?m)^\s*(?:import\s+)?"C"`)
)

// withoutImports has gofmt look at the grammar where go vet does nothing, because
// the code imports what is not here, or C.
func withoutImports(_ tool, found []Diagnostic) (tool, func(code string, first, second Result) Result) {
	var missing []Diagnostic
	for _, d := range found {
		at := goAbsent().FindStringSubmatch(d.Message)
		switch {
		case goEmbed().MatchString(d.Message), goExcluded().MatchString(d.Message):
			missing = append(missing, d)
		case at == nil:
		case !strings.Contains(at[1], ".") && (at[2] == "" || goStd().MatchString(at[1])):
			return tool{}, nil // nobody else has that either
		default:
			missing = append(missing, d)
		}
	}
	if missing == nil {
		return tool{}, nil
	}
	return gofmt, func(code string, first, second Result) Result {
		if cgo := goCgo().FindStringIndex(code); cgo != nil && goExcluded().MatchString(missing[0].Message) {
			missing = []Diagnostic{{Line: 1 + strings.Count(code[:cgo[1]], "\n"), Severity: "error", Message: `import "C" is not followed`}}
		} else if goExcluded().MatchString(missing[0].Message) {
			return first
		}
		second.Diagnostics = append(setAside(missing, regexp.MustCompile("")), second.Diagnostics...)
		return second
	}
}

var (
	moduleWord = pattern(`(?m)^[\s\x{FEFF}]*(import\s*[\w{*"']|export\b)`)
	rustMain   = pattern(`(?m)^[\s\x{FEFF}]*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?fn\s+main\s*\(`)
	rustAbsent = pattern(`unlinked crate|maybe a missing crate|can't find crate for|^E0583 `)
	// typescriptAbsent: modules and types of the surroundings that are not installed.
	typescriptAbsent = pattern(`^TS(?:2307|2580|2591|2792|7016) `)
)

// suitJavaScript tells node which of its two grammars the code seems to be in.
func suitJavaScript(t *tool, code string) {
	t.file = "code.cjs"
	if moduleWord().MatchString(code) {
		t.file = "code.mjs"
	}
}

// otherGrammar has node read code in its other grammar where it is none in the
// first.
func otherGrammar(t tool, found []Diagnostic) (tool, func(code string, first, second Result) Result) {
	if !hasErrors(found) {
		return tool{}, nil
	}
	if t.file == "code.cjs" {
		t.file = "code.mjs"
	} else {
		t.file = "code.cjs"
	}
	return t, func(_ string, first, second Result) Result {
		if second.Valid {
			return second
		}
		return first
	}
}

// suitRust tells rustc whether the code seems to be a program.
func suitRust(t *tool, code string) {
	kind := "--crate-type=lib"
	if rustMain().MatchString(code) {
		kind = "--crate-type=bin"
	}
	t.args = append([]string{kind}, t.args...)
}

// asLibrary has rustc look at a program without main as at a library.
func asLibrary(t tool, found []Diagnostic) (tool, func(code string, first, second Result) Result) {
	if !slices.ContainsFunc(found, func(d Diagnostic) bool { return d.Rule == "E0601" }) {
		return tool{}, nil
	}
	t.args = append([]string{"--crate-type=lib"}, t.args[1:]...)
	return t, func(_ string, _, second Result) Result { return second }
}

func rustSays(text, file string) []Diagnostic { return setAside(worded(text, file), rustAbsent()) }

func typescriptSays(text, file string) []Diagnostic {
	return setAside(worded(text, file), typescriptAbsent())
}
