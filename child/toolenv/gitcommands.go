package toolenv

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"mvdan.cc/sh/v3/syntax"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
	"nexus.internal/protocol/rights"
)

// git obeys the files of the repository that it is in, which an agent may write: they name
// pagers, hooks, drivers of diffs, and more that git runs. So its commands that only look run
// unasked with options of these lists alone, which are written out (git takes the beginning of
// an option for the option), and with gitSafe before them. What is left to a repository are the
// filters of its files (filter.NAME.clean), which no option turns off: like all that runs
// unasked they are confined, without a right to write and without a network.

// gitSafe goes before a command of git. What a command line says of the configuration goes
// before what any file says.
const gitSafe = " --no-pager --no-optional-locks -c core.fsmonitor=false -c core.hooksPath=/dev/null -c core.sshCommand=false" +
	" -c core.askPass=false -c credential.helper= -c diff.submodule=short -c status.submoduleSummary=false -c submodule.recurse=false" +
	" -c log.showSignature=false -c log.diffMerges=separate" +
	" -c gpg.program=false -c gpg.openpgp.program=false -c gpg.x509.program=false -c gpg.ssh.program=false" +
	" -c protocol.allow=never -c protocol.file.allow=never -c protocol.ext.allow=never -c protocol.git.allow=never" +
	" -c protocol.ssh.allow=never -c protocol.http.allow=never -c protocol.https.allow=never"

// gitDiffSafe goes after a command that shows differences, gitStatusSafe after status.
const (
	gitDiffSafe   = " --no-ext-diff --no-textconv --ignore-submodules=dirty"
	gitStatusSafe = " --ignore-submodules=dirty"
)

// gitOptions are those that commands may have, as a regular expression.
const (
	gitDiffOptions = `-[puszRrtabwWcmMCB]|--(no-)?(patch|color|renames|relative|abbrev|prefix)|--(raw|stat|numstat|shortstat|dirstat|summary|name-only|name-status|` +
		`compact-summary|patch-with-stat|color-words|word-diff|check|full-index|binary|text|minimal|patience|histogram|ignore-space-at-eol|` +
		`ignore-space-change|ignore-all-space|ignore-blank-lines|ignore-cr-at-eol|function-context|exit-code|quiet|cached|staged|merge-base|` +
		`find-renames|find-copies|find-copies-harder|pickaxe-all|pickaxe-regex|indent-heuristic|cc)|-[UMCBSG].+|-[SGU]|` +
		`--(unified|stat|diff-filter|diff-algorithm|word-diff|word-diff-regex|color|color-words|find-renames|find-copies|abbrev|inter-hunk-context|` +
		`src-prefix|dst-prefix|relative|dirstat)=.*`
	gitLogOptions = gitDiffOptions + `|-[niEFPgq]|-n?[0-9]+|-L.*|--(no-)?(decorate|graph|notes|merges|abbrev-commit|walk)|--(all-match|invert-grep|` +
		`regexp-ignore-case|extended-regexp|fixed-strings|perl-regexp|first-parent|all|branches|tags|remotes|oneline|relative-date|reverse|` +
		`topo-order|date-order|author-date-order|follow|left-right|cherry|cherry-pick|cherry-mark|boundary|simplify-by-decoration|full-history|` +
		`ancestry-path|source|show-pulls|walk-reflogs)|--(max-count|skip|since|after|until|before|author|committer|grep)(=.*)?|--(branches|tags|` +
		`remotes|glob|exclude|decorate|date)=.*|--pretty|--(pretty|format)=([^%]|%[^G+ -]|%[+ -][^G])*`
	gitStatusOptions = `-[sbz]+|-u(no|all|normal)?|--(no-)?(ahead-behind|renames|column)|--(short|branch|porcelain|long|untracked-files|ignored|show-stash)|` +
		`--(porcelain|untracked-files|ignored|find-renames)=.*`
)

// gitCommand is a command of git that only looks.
type gitCommand struct {
	options *regexp.Regexp
	safe    string // goes after it
}

var gitCommands = sync.OnceValue(func() map[string]gitCommand {
	whole := func(options string) *regexp.Regexp { return regexp.MustCompile(`(?s)^(?:` + options + `)$`) }
	diff, log := whole(gitDiffOptions), whole(gitLogOptions)
	return map[string]gitCommand{
		"diff": {diff, gitDiffSafe}, "log": {log, gitDiffSafe}, "show": {log, gitDiffSafe}, "status": {whole(gitStatusOptions), gitStatusSafe},
	}
})

// gitReadOnly reports whether git only looks with these arguments, once they are made safe.
func gitReadOnly(args []string) bool {
	at := gitCommandAt(args)
	if at < 0 {
		return false
	}
	return !slices.ContainsFunc(args[at+1:], func(arg string) bool {
		option := strings.HasPrefix(arg, "-") && arg != "--" // also after --, which may be an option's value
		return arg == unknownArg || option && !gitCommands()[args[at]].options.MatchString(arg)
	})
}

// gitWorks reports whether git can be made safe in a command, and finds its repository within
// what the command may read: otherwise it would fail where it does not once it is approved.
func gitWorks(s tool.Scope, p permission.Policy) bool {
	if strings.Contains(s.Command, "`") { // within these, places are not what they seem
		return false
	}
	dir := p.Cwd
	if len(s.Paths) > 0 {
		dir = absolutePath(p.Cwd, s.Paths[0])
	}
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(filepath.Join(dir, ".git"))
		switch {
		case err == nil: // a file leads elsewhere
			return info.IsDir() && (rights.Within(p.Cwd, dir) || rights.Contains(p.Permissions.AllowedPaths, dir))
		case dir == filepath.Dir(dir):
			return true
		}
	}
}

// gitCommandAt is where the command of git stands, after options that are harmless; -1 if it is
// none of gitCommands, or cannot be told.
func gitCommandAt(args []string) int {
	for i := 0; i < len(args); i++ {
		switch _, known := gitCommands()[args[i]]; {
		case known:
			return i
		case args[i] == "--no-pager" || args[i] == "-P":
		case args[i] == "-C" && i+1 < len(args) && args[i+1] != unknownArg:
			i++
		default:
			return -1
		}
	}
	return -1
}

// safeGit is a command that only looks, in which git runs nothing that its repository names.
func safeGit(command string) string {
	file, ok := shell.Parse(command)
	if !ok {
		return command
	}
	type insertion struct {
		at   int
		text string
	}
	var all []insertion
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 || wordText(call.Args[0]) != "git" {
			return true
		}
		var args []string
		for _, w := range call.Args[1:] {
			args = append(args, wordText(w))
		}
		if at := gitCommandAt(args); at >= 0 {
			all = append(all, insertion{int(call.Args[0].End().Offset()), gitSafe}, insertion{int(call.Args[at+1].End().Offset()), gitCommands()[args[at]].safe})
		}
		return true
	})
	slices.SortStableFunc(all, func(a, b insertion) int { return b.at - a.at }) // from the end, so that no place moves
	for _, in := range all {
		command = command[:in.at] + in.text + command[in.at:]
	}
	return command
}

// withSafeGit is a call of shell with safeGit of its command.
func withSafeGit(c tool.Call) tool.Call {
	var input map[string]jsontext.Value
	if json.Unmarshal(c.Input, &input) != nil {
		return c
	}
	var command string
	if json.Unmarshal(input["command"], &command) != nil {
		return c
	}
	safe := safeGit(command)
	if safe == command {
		return c
	}
	text, err := json.Marshal(safe)
	if err != nil {
		return c
	}
	input["command"] = text
	if text, err = json.Marshal(input, json.Deterministic(true)); err == nil {
		c.Input = text
	}
	return c
}
