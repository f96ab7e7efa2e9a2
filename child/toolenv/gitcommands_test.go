package toolenv

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
	"nexus.internal/protocol"
)

func TestSafeGit(t *testing.T) {
	for command, want := range map[string]string{
		"git log":                                  "gitS logD",
		"git -C a diff -U3 -- b":                   "gitS -C a diffD -U3 -- b",
		"git status -s | cat; ls && git show":      "gitS statusT -s | cat; ls && gitS showD",
		"echo äöü \"$(git log -n 1)\" $(git diff)": "echo äöü \"$(gitS logD -n 1)\" $(gitS diffD)",
		"cat <<E\nä $(git log)\nE":                 "cat <<E\nä $(gitS logD)\nE",
		"'git' \"log\"":                            "'git'S \"log\"D",
		"for f in a; do\n\tgit log $f\ndone":       "for f in a; do\n\tgitS logD $f\ndone",
		"echo git log":                             "echo git log",
		"git commit":                               "git commit",
		"ls":                                       "ls",
		"git log '":                                "git log '",
	} {
		got := strings.NewReplacer(gitSafe, "S", gitDiffSafe, "D", gitStatusSafe, "T").Replace(safeGit(command))
		if got != want {
			t.Errorf("%s: got %s, want %s", command, got, want)
		}
	}
}

// git is asked about where its repository is not within what a command may read unasked: it
// failed there, and nobody could approve it.
func TestGitWorks(t *testing.T) {
	top := realPath(t.TempDir())
	for _, dir := range []string{"repo/.git", "repo/sub/deep", "none", "tree"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(top, "tree/.git"), []byte("gitdir: ../repo/.git/worktrees/tree\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		cwd, in, allowed string
		want             bool
	}{
		{"repo", "", "", true},
		{"repo", "sub/deep", "", true},
		{"repo/sub", "", "", false},
		{"repo/sub", "deep", "", false},
		{"repo/sub", "", "repo", true},
		{"none", "", "", true},
		{"none", "../repo", "", false},
		{"tree", "", "", false},
	} {
		s := tool.Scope{Command: "git status"}
		if tt.in != "" {
			s.Paths = []string{tt.in}
		}
		p := permission.Policy{Cwd: filepath.Join(top, tt.cwd)}
		if tt.allowed != "" {
			p.Permissions.AllowedPaths = []string{filepath.Join(top, tt.allowed)}
		}
		if got := gitWorks(s, p); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}

// Whatever a command that runs unasked is made of, each git in it is the safe one, and nothing
// else of it has changed.
func FuzzSafeGit(f *testing.F) {
	f.Setenv("PATH", "/usr/bin:/bin")
	for _, s := range []string{"git log", "ä $(git log)", "cat <<E\n$(git -C a diff)\nE", "gi\\\nt lo\\\ng -n 1", "'git' \"show\"", "ls && (git status -s; cat a)", "echo \"$(git diff \"$(git log)\")\""} {
		f.Add(s)
	}
	policy := permission.Policy{Cwd: "/work", Permissions: protocol.Permissions{Preset: "trusted"}}
	f.Fuzz(func(t *testing.T, command string) {
		if !isReadOnly(tool.Scope{Command: command, Programs: shell.Describe(command)}, policy) {
			return
		}
		before, after := callsOf(t, command, false), callsOf(t, safeGit(command), true)
		if !slices.Equal(before, after) {
			t.Errorf("%q: %q is %q", command, before, after)
		}
	})
}

// callsOf are the calls of a command, without what makes git safe, which must be there if safe.
func callsOf(t *testing.T, command string, safe bool) (all []string) {
	file, ok := shell.Parse(command)
	if !ok {
		t.Fatalf("%q cannot be read", command)
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		if call, ok := node.(*syntax.CallExpr); ok {
			var words []string
			for _, w := range call.Args {
				words = append(words, wordText(w))
			}
			text := strings.Join(words, " ") + " "
			if words[0] == "git" && safe {
				if !strings.HasPrefix(text, "git"+gitSafe+" ") || !strings.Contains(text, gitStatusSafe+" ") {
					t.Errorf("%q is not safe", text)
				}
				text = strings.Replace(text, gitSafe, "", 1)
				text = strings.Replace(strings.Replace(text, gitDiffSafe, "", 1), gitStatusSafe, "", 1)
			}
			all = append(all, text)
		}
		return true
	})
	return all
}
