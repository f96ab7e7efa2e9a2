package workplace_test

import (
	"os"
	"strings"
	"testing"

	"nexus.internal/child/upcall"
	"nexus.internal/child/workplace"
	"nexus.internal/protocol"
)

// What a command may do follows from the permissions, and the kernel sees to
// it: the last column is a piece of what it says.
func TestCommands(t *testing.T) {
	for _, tt := range []struct {
		name      string
		preset    string
		approvals upcall.Approvals
		command   string
		want      string
	}{
		{"looking", "trusted", upcall.Deny, "cat a | wc -c", "4\n"},
		{"looking elsewhere", "trusted", upcall.Deny, "cat OUTSIDE/secret.txt", "ermission denied"},
		{"looking with a program that could do more", "trusted", upcall.Deny, "find . -name 'a*' | sort -r", "./a\n"},
		{"looking and changing", "trusted", upcall.Deny, "find . -name a -exec chmod 0 {} +", "needs an approval"},
		{"looking and writing", "trusted", upcall.Deny, "ls > b", "needs an approval"},
		{"changing", "trusted", upcall.Deny, "touch b", "needs an approval"},
		{"changing, approved", "trusted", upcall.Allow, "touch b && ls b", "b\n[exit status 0]"},
		{"changing elsewhere, approved", "trusted", upcall.Allow, "touch OUTSIDE/b", "cannot touch 'OUTSIDE/b'"},
		{"reading elsewhere, approved", "trusted", upcall.Allow, "cat OUTSIDE/secret.txt; true", "secret"},
		{"sandboxed", "sandboxed", upcall.Deny, "touch b && ls b", "b\n[exit status 0]"},
		{"sandboxed, reading elsewhere", "sandboxed", upcall.Deny, "cat OUTSIDE/secret.txt", "ermission denied"},
		{"sandboxed, what is blocked", "sandboxed", upcall.Deny, "cat blocked/key", "cat: blocked/key: "},
		{"yolo", "yolo", upcall.Deny, "touch OUTSIDE/b && ls OUTSIDE/b", "OUTSIDE/b\n[exit status 0]"},
		{"another's program of that name", "trusted", upcall.Deny, "./ls", "needs an approval"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, protocol.Permissions{Preset: tt.preset}, func(o *workplace.Options) {
				o.Parent = upcall.New(upcall.Options{Approvals: tt.approvals})
				if strings.Contains(tt.name, "blocked") {
					o.Permissions.BlockedPaths = []string{o.Cwd + "/blocked"}
				}
			})
			s.put(s.dir+"/a", "text")
			if err := os.Mkdir(s.dir+"/blocked", 0o777); err != nil {
				t.Fatal(err)
			}
			s.put(s.dir+"/blocked/key", "key")
			got := run(t.Context(), s.Workplace, call("shell", "command", strings.ReplaceAll(tt.command, "OUTSIDE", s.outside)))
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
