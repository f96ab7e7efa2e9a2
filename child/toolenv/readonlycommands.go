package toolenv

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
)

// readOnlyCommands are programs that are used to look at things. With these alone a
// command is run under trusted without asking, confined as under sandboxed and
// so that it can change nothing. Programs that can run others, or change things
// that the kernel does not guard, are here only with arguments that do not.
var readOnlyCommands = map[string]func(args []string) bool{
	"basename": anyArgs, "cat": anyArgs, "cd": anyArgs, "cksum": anyArgs, "cmp": anyArgs, "column": anyArgs, "comm": anyArgs,
	"cut": anyArgs, "diff": anyArgs, "dirname": anyArgs, "du": anyArgs, "echo": anyArgs, "egrep": anyArgs, "expr": anyArgs,
	"false": anyArgs, "fgrep": anyArgs, "fold": anyArgs, "grep": anyArgs, "head": anyArgs, "hexdump": anyArgs, "jq": anyArgs,
	"ls": anyArgs, "md5sum": anyArgs, "nl": anyArgs, "od": anyArgs, "paste": anyArgs, "pwd": anyArgs, "readlink": anyArgs,
	"realpath": anyArgs, "rev": anyArgs, "seq": anyArgs, "sha1sum": anyArgs, "sha256sum": anyArgs, "sleep": anyArgs,
	"stat": anyArgs, "strings": anyArgs, "tac": anyArgs, "tail": anyArgs, "tr": anyArgs, "true": anyArgs, "type": anyArgs,
	"uname": anyArgs, "wc": anyArgs, "which": anyArgs, "whoami": anyArgs,

	"[":      noPrefix("-v", "-R"), // a[$(rm x)] as a variable's name is run
	"test":   noPrefix("-v", "-R"),
	"date":   dateReadOnly,
	"file":   noOptions("CzZ", "--c", "--u"),
	"git":    gitReadOnly,
	"find":   noPrefix("-delete", "-exec", "-fls", "-fprint", "-ok"),
	"printf": printfReadOnly,
	"rg":     noOptions("z", "--hostname-bin", "--pre", "--search-zip"),
	"sort":   noOptions("o", "--c", "--o"),
	"tree":   noOptions("oR", "--o"),
	"uniq":   oneOperand,
	"xxd":    oneOperand,
}

// unknownArg stands for an argument that is known only when the command runs. No
// command that looks at its arguments runs unasked with it.
const unknownArg = "\x00"

// isReadOnly reports whether a call only looks at things, under a policy that lets
// the agent put no other program in the place of these.
func isReadOnly(s tool.Scope, p permission.Policy) bool {
	unknown := func(name string) bool { return readOnlyCommands[name] == nil }
	if s.Command == "" || len(s.Programs) == 0 || slices.ContainsFunc(s.Programs, unknown) || !confines() || reachesPrograms(p, s.Programs) {
		return false
	}
	file, ok := shell.Parse(s.Command)
	if !ok || slices.Contains(s.Programs, "git") && !gitWorks(s, p) {
		return false
	}
	looks := true
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.CallExpr:
			looks = looks && isReadOnlyCall(n)
		case *syntax.Stmt:
			looks = looks && isAwaited(n)
		case *syntax.WordIter: // for PATH in …
			looks = looks && n.Name.Value == strings.ToLower(n.Name.Value)
		}
		return looks
	})
	return looks
}

// isAwaited reports whether the shell waits for a statement's end: it runs nothing in the
// background.
func isAwaited(s *syntax.Stmt) bool { return !s.Background && !s.Coprocess && !s.Disown }

// isReadOnlyCall is isReadOnly for one program. Variables are settings of some, too.
func isReadOnlyCall(call *syntax.CallExpr) bool {
	if len(call.Assigns) > 0 || len(call.Args) == 0 {
		return false
	}
	var words []string
	for _, w := range call.Args {
		words = append(words, wordText(w))
	}
	looks := readOnlyCommands[words[0]]
	return looks != nil && looks(words[1:])
}

// wordText is what becomes of a word, or unclear. It fails towards unclear.
func wordText(w *syntax.Word) string {
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
			return unknownArg
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
		case '~':
			if i == 0 || !isWordByte(value[i-1]) { // a home, unless it is within a name, as in HEAD~1
				return "", false
			}
			b.WriteByte(c)
		case '*', '?', '[', ']', '{', '}', '$', '`':
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

func isWordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '^'
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

func anyArgs([]string) bool { return true }

// noPrefix lets all arguments pass that are clear and do not begin so.
func noPrefix(prefixes ...string) func([]string) bool { return noOptions("", prefixes...) }

// noOptions is noPrefix, and none of the letters may be among options that
// are put together after one dash.
func noOptions(letters string, prefixes ...string) func([]string) bool {
	return func(args []string) bool {
		return !slices.ContainsFunc(args, func(arg string) bool {
			begins := func(prefix string) bool { return strings.HasPrefix(arg, prefix) }
			short := begins("-") && !begins("--")
			return arg == unknownArg || slices.ContainsFunc(prefixes, begins) || short && strings.ContainsAny(arg, letters)
		})
	}
}

// dateReadOnly reports whether date only shows the time: an operand sets it.
func dateReadOnly(args []string) bool {
	return !slices.ContainsFunc(args, func(arg string) bool {
		harmless := func(prefix string) bool { return strings.HasPrefix(arg, prefix) }
		return arg != "-u" && arg != "-R" && !slices.ContainsFunc([]string{"+", "-I", "--date=", "--iso", "--rfc", "--utc"}, harmless)
	})
}

// printfReadOnly reports whether printf prints: with -v it sets a variable, and
// a[$(rm x)] as its name is run.
func printfReadOnly(args []string) bool {
	return len(args) > 0 && args[0] != unknownArg && !strings.HasPrefix(args[0], "-")
}

// oneOperand is for programs that write to their second operand.
func oneOperand(args []string) bool {
	operands := 0
	for _, arg := range args {
		if arg == unknownArg || arg == "--" {
			return false
		}
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			operands++
		}
	}
	return operands <= 1
}
