package toolenv_test

import (
	"os"
	"strings"
	"testing"

	"nexus.internal/child/parent"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

// What a command may do follows from the permissions, and the kernel sees to
// it: the last column is a piece of what it says.
func TestCommands(t *testing.T) {
	for _, tt := range []struct {
		name      string
		preset    string
		approvals parent.Approvals
		command   string
		want      string
	}{
		{"looking", "trusted", parent.Deny, "cat a | wc -c", "4\n"},
		{"looking elsewhere", "trusted", parent.Deny, "cat OUTSIDE/secret.txt", "ermission denied"},
		{"looking with a program that could do more", "trusted", parent.Deny, "find . -name 'a*' | sort -r", "./a\n"},
		{"looking and changing", "trusted", parent.Deny, "find . -name a -exec chmod 0 {} +", "needs an approval"},
		{"looking and writing", "trusted", parent.Deny, "ls > b", "needs an approval"},
		{"changing", "trusted", parent.Deny, "touch b", "needs an approval"},
		{"changing, approved", "trusted", parent.Allow, "touch b && ls b", "b\n[exit status 0]"},
		{"changing elsewhere, approved", "trusted", parent.Allow, "touch OUTSIDE/b", "cannot touch 'OUTSIDE/b'"},
		{"reading elsewhere, approved", "trusted", parent.Allow, "cat OUTSIDE/secret.txt; true", "secret"},
		{"sandboxed", "sandboxed", parent.Deny, "touch b && ls b", "b\n[exit status 0]"},
		{"sandboxed, reading elsewhere", "sandboxed", parent.Deny, "cat OUTSIDE/secret.txt", "ermission denied"},
		{"sandboxed, what is blocked", "sandboxed", parent.Deny, "cat blocked/key", "cat: blocked/key: "},
		{"yolo", "yolo", parent.Deny, "touch OUTSIDE/b && ls OUTSIDE/b", "OUTSIDE/b\n[exit status 0]"},
		{"another's program of that name", "trusted", parent.Deny, "./ls", "needs an approval"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, protocol.Permissions{Preset: tt.preset}, func(o *toolenv.Options) {
				o.Parent = parent.New(parent.Options{Approvals: tt.approvals})
				if strings.Contains(tt.name, "blocked") {
					o.Permissions.BlockedPaths = []string{o.Cwd + "/blocked"}
				}
			})
			s.put(s.dir+"/a", "text")
			if err := os.Mkdir(s.dir+"/blocked", 0o777); err != nil {
				t.Fatal(err)
			}
			s.put(s.dir+"/blocked/key", "key")
			got := run(t.Context(), s.Env, call("shell", "command", strings.ReplaceAll(tt.command, "OUTSIDE", s.outside)))
			got = strings.NewReplacer(s.dir, "WORK", s.outside, "OUTSIDE").Replace(got)
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q in it", got, tt.want)
			}
			if secret, err := os.ReadFile(s.outside + "/secret.txt"); string(secret) != "secret" {
				t.Errorf("the secret is %q, %v", secret, err)
			}
		})
	}
}

// A yes to the programs of a command is no yes to what they find behind a link:
// it is asked about when a tool reads it, so a copy must not be had unasked, and
// nothing is changed there.
func TestForTheSessionNoLinkLeadsOut(t *testing.T) {
	s, parent := asked(t, trusted)
	s.put(s.dir+"/a", "text")
	for link, to := range map[string]string{"docs": s.outside + "/secret.txt", "dir": s.outside} {
		if err := os.Symlink(to, s.dir+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	result := s.begin(t.Context(), call("shell", "command", "cp a b && cat a > c"))
	answer(t, parent, question(t, parent), protocol.AllowSession, "")
	if got := <-result; got != "[exit status 0]" {
		t.Errorf("got %q", got)
	}
	ended(t, parent)
	for _, tt := range []struct{ command, want string }{
		{"cp -r a d && cat a > e && cp b f", "[exit status 0]"},
		{"cp docs g", "docs' for reading: Permission denied\n[exit status 1]\n[a command that was allowed for the session can read only"},
		{"cat docs > g", "docs: Permission denied"},
		{"cat < docs", "docs: Permission denied"},
		{"cp dir/secret.txt g", "Permission denied"},
		{"cp -r dir/. i", "Permission denied"},
		{"cp a docs", "docs': "},
		{"cp a dir/b", "dir/b': "},
		{"cat a > docs", "docs: "},
	} {
		got := run(t.Context(), s.Env, call("shell", "command", tt.command))
		if !strings.Contains(got, tt.want) || strings.Contains(got, "secret\n") {
			t.Errorf("%s: %q, want %q in it", tt.command, got, tt.want)
		}
		quiet(t, parent)
	}
	if g, _ := os.ReadFile(s.dir + "/g"); len(g) != 0 {
		t.Errorf("the copy holds %q", g)
	}
	if secret, err := os.ReadFile(s.outside + "/secret.txt"); string(secret) != "secret" {
		t.Errorf("the secret is %q, %v", secret, err)
	}
	if names, err := os.ReadDir(s.outside); len(names) != 1 {
		t.Errorf("outside is %v, %v", names, err)
	}
	// What a person is shown, it may read.
	result = s.begin(t.Context(), call("shell", "command", "cp "+s.outside+"/secret.txt h"))
	answer(t, parent, question(t, parent), protocol.AllowOnce, "")
	if got := <-result; got != "[exit status 0]" {
		t.Errorf("got %q", got)
	}
	ended(t, parent)
}
