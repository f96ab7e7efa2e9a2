package workplace

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
)

// lookers are programs that are used to look at things. With these alone a
// command is run under trusted without asking, confined as under sandboxed and
// so that it can change nothing. Programs that can run others, or change things
// that the kernel does not guard, are here only with arguments that do not.
var lookers = map[string]func(args []string) bool{
	"basename": whatever, "cat": whatever, "cd": whatever, "cksum": whatever, "cmp": whatever, "column": whatever, "comm": whatever,
	"cut": whatever, "diff": whatever, "dirname": whatever, "du": whatever, "echo": whatever, "egrep": whatever, "expr": whatever,
	"false": whatever, "fgrep": whatever, "fold": whatever, "grep": whatever, "head": whatever, "hexdump": whatever, "jq": whatever,
	"ls": whatever, "md5sum": whatever, "nl": whatever, "od": whatever, "paste": whatever, "pwd": whatever, "readlink": whatever,
	"realpath": whatever, "rev": whatever, "seq": whatever, "sha1sum": whatever, "sha256sum": whatever, "sleep": whatever,
	"stat": whatever, "strings": whatever, "tac": whatever, "tail": whatever, "tr": whatever, "true": whatever, "type": whatever,
	"uname": whatever, "wc": whatever, "which": whatever, "whoami": whatever,

	"[":      without("-v", "-R"), // a[$(rm x)] as a variable's name is run
	"test":   without("-v", "-R"),
	"date":   dateLooks,
	"file":   withoutOptions("CzZ", "--c", "--u"),
	"find":   without("-delete", "-exec", "-fls", "-fprint", "-ok"),
	"printf": printfLooks,
	"rg":     withoutOptions("z", "--hostname-bin", "--pre", "--search-zip"),
	"sort":   withoutOptions("o", "--c", "--o"),
	"tree":   withoutOptions("oR", "--o"),
	"uniq":   oneOperand,
	"xxd":    oneOperand,
}

// unclear stands for an argument that is known only when the command runs. No
// looker that cares for its arguments runs unasked with it.
const unclear = "\x00"

// looking reports whether a call only looks at things, under a policy that lets
// the agent put no other program in the place of these.
func looking(s tool.Scope, p permission.Policy) bool {
	unknown := func(name string) bool { return lookers[name] == nil }
	if s.Command == "" || len(s.Programs) == 0 || slices.ContainsFunc(s.Programs, unknown) || !confines() || reachesPrograms(p, s.Programs) {
		return false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(s.Command), "")
	if err != nil {
		return false
	}
	looks := true
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.CallExpr:
			looks = looks && callLooks(n)
		case *syntax.WordIter: // for PATH in …
			looks = looks && n.Name.Value == strings.ToLower(n.Name.Value)
		}
		return looks
	})
	return looks
}

// callLooks is looking for one program. Variables are settings of some, too.
func callLooks(call *syntax.CallExpr) bool {
	if len(call.Assigns) > 0 || len(call.Args) == 0 {
		return false
	}
	var words []string
	for _, w := range call.Args {
		words = append(words, word(w))
	}
	looks := lookers[words[0]]
	return looks != nil && looks(words[1:])
}

// word is what becomes of a word, or unclear. It fails towards unclear.
func word(w *syntax.Word) string {
	var b strings.Builder
	for _, part := range w.Parts {
		text, ok := "", false
		switch p := part.(type) {
		case *syntax.Lit:
			text, ok = literal(p.Value)
		case *syntax.SglQuoted:
			text, ok = p.Value, !p.Dollar
		case *syntax.DblQuoted:
			text, ok = doubleQuoted(p)
		}
		if !ok {
			return unclear
		}
		b.WriteString(text)
	}
	return b.String()
}

// literal is a text without quotes: unless it is escaped, a pattern in it may
// become the name of a file that looks like an option.
func literal(value string) (text string, ok bool) {
	if value == "[" || value == "]" {
		return value, true
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		switch c := value[i]; c {
		case '*', '?', '[', ']', '{', '}', '~', '$', '`':
			return "", false
		case '\\':
			if i++; i == len(value) || value[i] == '\n' {
				return "", false
			}
			b.WriteByte(value[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

func doubleQuoted(q *syntax.DblQuoted) (text string, ok bool) {
	for _, part := range q.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok || strings.Contains(lit.Value, `\`) {
			return "", false
		}
		text += lit.Value
	}
	return text, !q.Dollar
}

func whatever([]string) bool { return true }

// without lets all arguments pass that are clear and do not begin so.
func without(prefixes ...string) func([]string) bool { return withoutOptions("", prefixes...) }

// withoutOptions is without, and none of the letters may be among options that
// are put together after one dash.
func withoutOptions(letters string, prefixes ...string) func([]string) bool {
	return func(args []string) bool {
		return !slices.ContainsFunc(args, func(arg string) bool {
			begins := func(prefix string) bool { return strings.HasPrefix(arg, prefix) }
			short := begins("-") && !begins("--")
			return arg == unclear || slices.ContainsFunc(prefixes, begins) || short && strings.ContainsAny(arg, letters)
		})
	}
}

// dateLooks reports whether date only shows the time: an operand sets it.
func dateLooks(args []string) bool {
	return !slices.ContainsFunc(args, func(arg string) bool {
		harmless := func(prefix string) bool { return strings.HasPrefix(arg, prefix) }
		return arg != "-u" && arg != "-R" && !slices.ContainsFunc([]string{"+", "-I", "--date=", "--iso", "--rfc", "--utc"}, harmless)
	})
}

// printfLooks reports whether printf prints: with -v it sets a variable, and
// a[$(rm x)] as its name is run.
func printfLooks(args []string) bool {
	return len(args) > 0 && args[0] != unclear && !strings.HasPrefix(args[0], "-")
}

// oneOperand is for programs that write to their second operand.
func oneOperand(args []string) bool {
	operands := 0
	for _, arg := range args {
		if arg == unclear || arg == "--" {
			return false
		}
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			operands++
		}
	}
	return operands <= 1
}
