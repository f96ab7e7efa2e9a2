package codecheck

import (
	"regexp"
	"strings"

	"nexus.internal/protocol"
)

// notChecked is the rule of a warning that something outside the code is not
// here, and so what depends on it was not looked at.
const notChecked = "not-checked"

// dropMatching makes warnings of the faults that are of the place and not of the code:
// those whose words match.
func dropMatching(found []protocol.CodeDiagnostic, words *regexp.Regexp) []protocol.CodeDiagnostic {
	for i, d := range found {
		if isError(d, words) {
			found[i].Severity, found[i].Rule = "warning", notChecked
			found[i].Message = strings.TrimSuffix(strings.TrimSuffix(d.Message, " in any of:"), ".") + ": what depends on it was not checked"
		}
	}
	return found
}

func isError(d protocol.CodeDiagnostic, words *regexp.Regexp) bool {
	return d.Severity == "error" && words.MatchString(d.Rule+" "+d.Message)
}

// Words of tools, which are compiled by the run that needs them.
const (
	anything   = ""
	moduleWord = `(?m)^[\s\x{FEFF}]*(import\s*[\w{*"']|export\b)`
	rustMain   = `(?m)^[\s\x{FEFF}]*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?fn\s+main\s*\(`
	rustNoMain = `^E0601 `
	rustAbsent = `unlinked crate|maybe a missing crate|can't find crate for|^E0583 `
	// typescriptAbsent: modules and types of the surroundings that are not installed, and
	// those of JSX, which come with a library.
	typescriptAbsent = `^TS(?:2307|2580|2591|2792|2875|7016|7026) `
	// sqlAbsent is what other files make.
	sqlAbsent = `^ ?no such (?:table|view|index|trigger|module|function|collation sequence): |^ ?unknown database `
	goSkipped = `^\x{FEFF}?(?:\s|//[^\n]*(?:\n|$)|/\*(?s:.*?)\*/)*`
	// goDeclaration begins with what stands outside of functions.
	goDeclaration = goSkipped + `(?:import|type|const|var|func\s+[(\pL_])`
)

var (
	// goAbsent is an import that was not found. It may be elsewhere if its path has
	// a host, or begins with no directory of the standard library.
	goAbsent = pattern(`(?:cannot find package "|no required module provides package |package )([^\s":;/]+)(/[^\s":;]+)?`)
	goStd    = pattern(`^(?:archive|compress|container|crypto|database|debug|encoding|go|hash|html|image|index|internal|io|iter|log|math|` +
		`mime|net|os|path|regexp|runtime|sync|testing|text|time|unicode)$`)
	goEmbed    = pattern(`^pattern .*: no matching files found`)
	goExcluded = pattern(`build constraints exclude all Go files`)
	goComments = pattern(goSkipped)
	goPackage  = pattern(`^package\b`)
	goCgo      = pattern(`(?m)^\s*(?:import\s+)?"C"`)
)

// isFragment reports whether Go code has something, and no package clause before that.
func isFragment(code string) bool {
	rest := code[len(goComments().FindString(code)):]
	return rest != "" && !goPackage().MatchString(rest)
}

// missingImports are the warnings of what go vet did not find and gofmt does not need; nil
// where its answer stands: nothing is missing, or nobody else has it either.
func missingImports(code string, found []protocol.CodeDiagnostic) []protocol.CodeDiagnostic {
	var missing []protocol.CodeDiagnostic
	for _, d := range found {
		at := goAbsent().FindStringSubmatch(d.Message)
		switch {
		case goEmbed().MatchString(d.Message), goExcluded().MatchString(d.Message):
			missing = append(missing, d)
		case at == nil:
		case !strings.Contains(at[1], ".") && (at[2] == "" || goStd().MatchString(at[1])):
			return nil
		default:
			missing = append(missing, d)
		}
	}
	if len(missing) > 0 && goExcluded().MatchString(missing[0].Message) {
		cgo := goCgo().FindStringIndex(code)
		if cgo == nil {
			return nil
		}
		missing = []protocol.CodeDiagnostic{{Line: 1 + strings.Count(code[:cgo[1]], "\n"), Severity: "error", Message: `import "C" is not followed`}}
	}
	return dropMatching(missing, regexp.MustCompile(anything))
}

// wrapped is the code with what stands around it.
func (t tool) wrapped(code string) string {
	if t.before == "" {
		return code
	}
	return t.before + strings.TrimPrefix(code, "\uFEFF") + t.after
}

// unwrapped has the places of faults as they are in the code: those behind its end are there.
func (t tool) unwrapped(code string, found []protocol.CodeDiagnostic) []protocol.CodeDiagnostic {
	if t.before == "" {
		return found
	}
	last := 1 + strings.Count(strings.TrimRight(code, "\r\n"), "\n")
	for i := range found {
		d := &found[i]
		if d.Line > last {
			d.Line, d.Column = last, 0
		} else if d.Line == 1 {
			d.Column = max(0, d.Column-len(t.before))
		}
	}
	return found
}
