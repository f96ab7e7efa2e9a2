package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// What Describe says beside names of programs. No program bears such a name.
const (
	// Unknown stands for a program that is known only when the command runs, or
	// for a command that cannot be read.
	Unknown = "?"
	// Writes stands for a file that the shell itself writes to.
	Writes = ">"
)

// Bounds of what Parse reads. The parser goes one call deeper for each level, and Go ends a
// process whose calls are too deep: within these bounds it takes at most some 32 MiB.
const (
	maxParsed = 64 << 10 // bytes
	maxOpened = 4000     // of ( { and [, closed or not: what is quoted cannot be told apart
)

// Parse reads a command as bash does. It is not ok for one that bash would not read, and for
// one of more than 64 KiB, or with more than 4,000 of the signs that open a level.
func Parse(command string) (file *syntax.File, ok bool) {
	opened := 0
	for _, sign := range []string{"(", "{", "["} {
		opened += strings.Count(command, sign)
	}
	if len(command) > maxParsed || opened > maxOpened {
		return nil, false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), "")
	return file, err == nil
}

// Describe names what a command runs, as it stands there and each once, in order;
// with a path where it has one, so that ./ls is not ls. It does not look into
// programs that run others, such as env, xargs or eval, nor at what the shell's
// own commands do with their arguments, such as test, printf or read: whoever
// allows these allows all. It fails towards more: [Unknown] and [Writes] are among
// the names where they apply.
func Describe(command string) (programs []string) {
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			programs = append(programs, name)
		}
	}
	file, ok := Parse(command)
	if !ok {
		return []string{Unknown}
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.CallExpr:
			for _, a := range n.Assigns {
				if alters(a) {
					add(Unknown)
				}
			}
			if len(n.Args) > 0 {
				add(name(n.Args[0]))
			}
		case *syntax.DeclClause:
			add(n.Variant.Value)
			for _, a := range n.Args {
				if alters(a) {
					add(Unknown)
				}
			}
		case *syntax.Redirect:
			if writes(n) {
				add(Writes)
			}
		case *syntax.FuncDecl, *syntax.CoprocClause:
			add(Unknown) // a function may bear the name of a program
		case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.LetClause, *syntax.CStyleLoop:
			add(Unknown) // a variable in it may hold a[$(rm x)], and that is run
		case *syntax.ParamExp:
			if n.Index != nil || n.Slice != nil || n.Exp != nil && n.Exp.Op == syntax.OtherParamOps {
				add(Unknown) // the same
			}
		case *syntax.TestClause:
			add(Unknown) // the same, for -eq and -v
		case *syntax.ProcSubst:
			if n.Op == syntax.CmdOut {
				add(Writes)
			}
		}
		return true
	})
	return programs
}

// name is the program that a word names.
func name(w *syntax.Word) string {
	var b strings.Builder
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					return Unknown
				}
				b.WriteString(lit.Value)
			}
		default:
			return Unknown
		}
	}
	// A pattern may match anything, and what is escaped is not what stands there.
	if text := b.String(); text != "" && !strings.ContainsAny(text, "*?[]{}~\\$`!<>") {
		return text
	}
	if b.String() == "[" {
		return "["
	}
	return Unknown
}

// alters reports whether an assignment changes which programs are run.
func alters(a *syntax.Assign) bool {
	if a.Name == nil {
		return true
	}
	name := a.Name.Value
	switch name {
	case "PATH", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND", "PS4", "CDPATH":
		return true
	}
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "BASH_FUNC") ||
		strings.HasSuffix(name, "PAGER") || strings.HasSuffix(name, "EDITOR")
}

// writes reports whether a redirection writes to a file, as far as is known.
func writes(r *syntax.Redirect) bool {
	switch r.Op {
	case syntax.RdrIn, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc, syntax.DplIn:
		return false
	case syntax.DplOut:
		target := r.Word.Lit() // 2>&1 and 2>&- copy and close, >&FILE writes
		return target == "" || strings.Trim(target, "0123456789-") != ""
	default:
		return r.Word == nil || r.Word.Lit() != "/dev/null"
	}
}
