package toolenv_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nexus.internal/child/parent"
	"nexus.internal/child/permission"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

// What is private is out of bounds for all that an agent has, whatever it was
// allowed, and is told to nobody.
func TestPrivate(t *testing.T) {
	for _, preset := range []string{"sandboxed", "trusted"} {
		t.Run(preset, func(t *testing.T) {
			s := newSite(t, protocol.Permissions{Preset: preset}, func(o *toolenv.Options) {
				home := filepath.Join(o.Cwd, "home")
				if err := os.Mkdir(home, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink("home", filepath.Join(o.Cwd, "link")); err != nil {
					t.Fatal(err)
				}
				o.Private = permission.Private{Paths: []string{filepath.Join(o.Cwd, "link")}}
				o.Permissions.Tools = map[string]protocol.ToolRule{"talk": {Mode: "allow"}, "read_file": {Mode: "allow", AllowedPaths: []string{"/"}}}
				o.Allowances = []protocol.Allowance{{Tool: "read_file", Action: protocol.ActionRead, Dir: home}}
				o.Parent = parent.New(parent.Options{Approvals: parent.Allow})
				o.Spill, o.Tools = filepath.Join(t.TempDir(), "scratch"), []tool.Tool{talker(strings.Repeat("0123456789\n", 10_000))}
			})
			key := filepath.Join(s.dir, "home", "key")
			s.put(key, "secret")
			s.want("read_file: WORK/home/key is out of bounds: it belongs to nexus itself", call("read_file", "path", "home/key"))
			s.want("read_file: WORK/link/key is out of bounds: it belongs to nexus itself", call("read_file", "path", "link/key"))
			s.want("write_file: WORK/home/new is out of bounds: it belongs to nexus itself", call("write_file", "path", "home/new", "content", ""))
			if got := run(t.Context(), s.Env, call("search_text", "pattern", "secret")); strings.Contains(got, "key:") {
				t.Errorf("found %q", got)
			}
			if f, _, err := s.Open(key); err == nil || !strings.Contains(err.Error(), "it belongs to nexus itself") {
				t.Errorf("opened %v, %v", f, err)
			}
			if err := s.SetCwd(filepath.Dir(key), protocol.WithinCeiling); err == nil || !strings.Contains(err.Error(), "it belongs to nexus itself") {
				t.Errorf("moved: %v", err)
			}
			if told := fmt.Sprint(s.State(), s.Permissions()); strings.Contains(told, "/link") || strings.Contains(told, "blocked:[/") {
				t.Errorf("told: %s", told)
			}
			rules := s.Rules("shell")
			if !slices.Contains(rules.Blocked, filepath.Dir(key)) {
				t.Errorf("programs are kept from %v", rules.Blocked)
			}
			if preset == "trusted" && rules.Confinement != sandbox.WherePossible {
				t.Errorf("the confinement is %v", rules.Confinement)
			}
			_, note, _ := strings.Cut(run(t.Context(), s.Env, call("talk")), "the whole is in ")
			s.want("0123456789\n", call("read_file", "path", strings.TrimSuffix(note, "]"), "offset", 10_000))
			if err := s.SetPermissions(protocol.Permissions{Preset: "yolo"}, protocol.WithinCeiling); err != nil {
				t.Fatal(err)
			}
			s.want("secret", call("read_file", "path", "home/key"))
			if rules := s.Rules("shell"); rules.Confinement != sandbox.Unconfined || len(rules.Blocked) > 0 {
				t.Errorf("under yolo: %+v", rules)
			}
		})
	}
}
