package toolenv

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"

	"nexus.internal/child/permission"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// writeCommands are programs that change files and do nothing else, each with the
// arguments that it may have. Beside them and readOnlyCommands, no program is allowed for
// a session: builds, tests, package managers, git and whatever else heeds files
// of the project run what the agent has written there.
var writeCommands = map[string]func(args []string) bool{
	"chmod": chmodSafe,
	"cp":    onlyOptions("Rafnprv", "--recursive", "--no-clobber", "--verbose"),
	"mkdir": onlyOptions("pv", "--parents", "--verbose"),
	"mv":    onlyOptions("fnv", "--no-clobber", "--verbose"),
	"rm":    onlyOptions("Rdfrv", "--recursive", "--force", "--verbose"),
	"rmdir": onlyOptions("pv", "--parents", "--verbose"),
	"touch": onlyOptions("acm", "--no-create"),
}

// onlyOptions lets options of these letters and these long ones pass.
func onlyOptions(letters string, long ...string) func([]string) bool {
	return func(args []string) bool {
		for _, arg := range args {
			switch {
			case arg == "--":
				return true
			case strings.HasPrefix(arg, "--"):
				if !slices.Contains(long, arg) {
					return false
				}
			case strings.HasPrefix(arg, "-") && strings.Trim(arg[1:], letters) != "":
				return false
			}
		}
		return true
	}
}

var fileMode = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-7]{1,3}|[ugoa]*[-+=][rwxX]*)$`) })

// chmodSafe lets modes pass that only a file's owner and others have.
func chmodSafe(args []string) bool {
	if len(args) > 0 && args[0] == "-R" {
		args = args[1:]
	}
	return len(args) > 1 && fileMode().MatchString(args[0]) && onlyOptions("")(args[1:])
}

// isPlain reports whether a command is a [permission.Call] that is plain: of
// writeCommands and readOnlyCommands alone, without variables, patterns and the like, with
// paths that lead no further up than where it runs, under a policy that lets the
// agent put no program where the shell looks for these.
func isPlain(s tool.Scope, p permission.Policy) bool {
	if s.Command == "" || len(s.Programs) == 0 || reachesPrograms(p, s.Programs) {
		return false
	}
	file, ok := shell.Parse(s.Command)
	if !ok {
		return false
	}
	is := true
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case nil, *syntax.File, *syntax.Comment, *syntax.Word, *syntax.Lit, *syntax.SglQuoted, *syntax.DblQuoted:
		case *syntax.Stmt:
			is = is && isAwaited(n)
		case *syntax.BinaryCmd:
			is = is && (n.Op == syntax.AndStmt || n.Op == syntax.OrStmt || n.Op == syntax.Pipe)
		case *syntax.CallExpr:
			is = is && isPlainCall(n)
		case *syntax.Redirect:
			is = is && isPlainRedirect(n)
		default: // of all else that the shell knows, something may run a program
			is = false
		}
		return is
	})
	return is
}

// reachesPrograms reports whether the agent may change what the shell starts by
// these names: a directory of PATH, or a file that one of the programs there is
// a link to.
func reachesPrograms(p permission.Policy, programs []string) bool {
	accessible := p.AccessiblePaths("shell")
	for _, a := range p.Allowances { // also those of tools that change files
		if a.Dir != "" && a.Action != protocol.ActionRead {
			accessible = append(accessible, a.Dir)
		}
	}
	for _, dir := range filepath.SplitList(cmp.Or(os.Getenv("PATH"), sandbox.DefaultPath)) {
		if !filepath.IsAbs(dir) {
			continue // programs do not get it
		}
		paths := []string{filepath.Clean(dir)}
		for _, name := range programs {
			paths = append(paths, filepath.Join(dir, name))
		}
		for _, path := range bothNames(paths) {
			if slices.ContainsFunc(accessible, func(dir string) bool { return rights.Within(dir, path) }) {
				return true
			}
		}
	}
	return false
}

// isPlainCall is isPlain for one program.
func isPlainCall(call *syntax.CallExpr) bool {
	if len(call.Assigns) > 0 || len(call.Args) == 0 {
		return false
	}
	var words []string
	for _, w := range call.Args {
		words = append(words, wordText(w))
	}
	name, args := words[0], words[1:]
	if name == "cd" && (len(args) != 1 || strings.HasPrefix(args[0], "-")) {
		return false // cd alone goes to the user's home, cd - to anywhere
	}
	may := writeCommands[name]
	if may == nil && name != "git" { // which is safe only with what a read-only command is given
		may = readOnlyCommands[name]
	}
	return may != nil && may(args) && !slices.ContainsFunc(args, func(arg string) bool { return !staysBelow(arg) })
}

// isPlainRedirect reports whether a redirection is to or from a file below, or from
// one descriptor to another. The shell makes connections of some paths in /dev.
func isPlainRedirect(r *syntax.Redirect) bool {
	to := wordText(r.Word)
	switch r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrIn, syntax.RdrAll, syntax.AppAll, syntax.RdrClob:
		return r.Hdoc == nil && (to == os.DevNull || to != "" && staysBelow(to))
	case syntax.DplOut:
		return to == "1" || to == "2"
	default:
		return false
	}
}

// staysBelow reports whether an argument names nothing outside of where a program
// runs, as far as its text tells: an option may hold a path, too.
func staysBelow(arg string) bool {
	if arg == unknownArg || strings.HasPrefix(arg, "-") && strings.Contains(arg, "/") {
		return false
	}
	return !filepath.IsAbs(arg) && !strings.Contains(arg, "=/") && !slices.Contains(strings.Split(arg, "/"), "..")
}
