package toolenv_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nexus.internal/child/parent"
	"nexus.internal/child/tool"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

// What the model is told of its walls are the rules that hold, in the prompt and with shell. It
// stays the same until the permissions change, since providers cache what requests begin with.
func TestTheModelIsToldOfItsWalls(t *testing.T) {
	t.Setenv("PATH", "/usr/bin:/bin:"+t.TempDir())
	for _, tt := range []struct {
		name        string
		permissions protocol.Permissions
		prompt      []string
		shell       string
	}{
		{
			"sandboxed",
			protocol.Permissions{Preset: "sandboxed", AllowedPaths: []string{"/srv/data"}},
			[]string{
				"Permissions: sandboxed, ", "\nAllowed paths: /srv/data\n",
				"\nWalls: programs share a loopback of their own and have no other network, write only to $TMPDIR and /srv/data, WORK, and read only these and the system's",
				"\nFound on PATH: bash ", "\nTime: a call of a tool ends after 5m0s, unless",
			},
			"The walls of this agent: programs share a loopback of their own and have no other network, write only to $TMPDIR and /srv/data, WORK",
		},
		{
			"trusted, with bounds",
			protocol.Permissions{Preset: "trusted", WritePaths: []string{}, BlockedPaths: []string{"/srv/no\nsuch"}},
			[]string{
				"Permissions: trusted, ", "\nBlocked paths: \"/srv/no\\nsuch\"\n",
				"\nWalls: programs have the network, write only to $TMPDIR, and read all files of their user, except",
			},
			"The walls of this agent: programs have the network",
		},
		{"yolo", protocol.Permissions{Preset: "yolo"}, []string{"\nWalls: programs do all that their user may, the network included."}, "programs do all"},
		{"without shell", protocol.Permissions{Preset: "sandboxed", DisabledTools: []string{"shell"}}, []string{"Permissions: sandboxed, "}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, tt.permissions)
			got := strings.ReplaceAll(s.Walls(), s.dir, "WORK")
			for _, want := range tt.prompt {
				if !strings.Contains(got, want) {
					t.Errorf("the prompt has %q, want %q in it", got, want)
				}
			}
			if again := strings.ReplaceAll(s.Walls(), s.dir, "WORK"); again != got {
				t.Errorf("the next turn has %q", again)
			}
			if tt.shell == "" && (strings.Contains(got, "Walls:") || described(s.Env) != "") {
				t.Errorf("without shell: %q, %q", got, described(s.Env))
			}
			if shell := strings.ReplaceAll(described(s.Env), s.dir, "WORK"); !strings.Contains(shell, tt.shell) {
				t.Errorf("shell: %q, want %q in it", shell, tt.shell)
			}
		})
	}
}

// described is the description of shell as the model gets it.
func described(env *toolenv.Env) string {
	specs := env.Tools().Specs()
	i := slices.IndexFunc(specs, func(spec tool.Spec) bool { return spec.Name == "shell" })
	if i < 0 {
		return ""
	}
	return specs[i].Description
}

// Other permissions and another bound of time are told from the next turn on.
func TestTheWallsChange(t *testing.T) {
	s := newSite(t, protocol.Permissions{Preset: "trusted"})
	if got := described(s.Env); !strings.Contains(got, "programs have the network") {
		t.Errorf("at first: %q", got)
	}
	if err := s.SetPermissions(protocol.Permissions{Preset: "sandboxed"}, protocol.WithinCeiling); err != nil {
		t.Fatal(err)
	}
	if got := s.Walls() + described(s.Env); strings.Contains(got, "programs have the network") || strings.Count(got, "programs share a loopback of their own and have no other network") != 2 {
		t.Errorf("sandboxed: %q", got)
	}
	s.Tools().SetTimeout(90 * time.Second)
	if got := s.Walls() + described(s.Env); strings.Count(got, "each call of a tool ends after 1m30s") != 2 {
		t.Errorf("with a bound: %q", got)
	}
}

// A start offers tools, and does not search for programs: that takes some 200 system calls.
func TestProgramsAreSoughtForTheFirstPrompt(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	s := newSite(t, protocol.Permissions{Preset: "trusted"})
	described(s.Env)
	if err := os.WriteFile(filepath.Join(dir, "rg"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := s.Walls(); !strings.Contains(got, "\nFound on PATH: rg\n") {
		t.Errorf("a program that came after the tools were offered: %q", got)
	}
}

// A failure that the walls are the likely cause of says so; any other does not.
func TestFailuresAtTheWalls(t *testing.T) {
	for _, tt := range []struct {
		name, preset, command, want string
	}{
		{"no network", "sandboxed", "echo 'curl: (6) Could not resolve host: example.com'; exit 6", "have no other network"},
		{"no socket", "sandboxed", "exec 3<>/dev/tcp/192.0.2.1/80", "have no other network"},
		{"a server that is not there", "sandboxed", "echo 'dial tcp 127.0.0.1:8080: connect: connection refused'; false", ""},
		{"go without network", "sandboxed", "echo 'dial tcp: lookup proxy.golang.org: permission denied'; false", "Use what is there already"},
		{"writing outside", "sandboxed", "touch OUTSIDE/a", "write only to $TMPDIR and WORK, and read only these"},
		{"reading outside", "sandboxed", "cat OUTSIDE/secret.txt", "copies within it of what is read"},
		{"npm", "trusted", "echo 'npm error code EACCES'; echo 'npm error path /root/.npm/_cacache: EACCES'; exit 243", "write only to $TMPDIR and WORK, and read all"},
		{"by a relative path", "sandboxed", "cat ../outside/secret.txt", "[likely the walls of this agent: "},
		{"a mode of its own", "sandboxed", "echo 'cat: WORK/a: Permission denied'; exit 1", ""},
		{"a file that is not there", "sandboxed", "cat nothing", ""},
		{"a test that failed", "sandboxed", "echo '--- FAIL'; exit 1", ""},
		{"it succeeded", "sandboxed", "echo '/etc/shadow: Permission denied'", ""},
		{"the network is there", "trusted", "echo 'curl: (6) Could not resolve host: no.example'; exit 6", ""},
		{"no walls", "yolo", "echo '/etc/shadow: Permission denied'; exit 1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, protocol.Permissions{Preset: tt.preset}, func(o *toolenv.Options) {
				o.Parent = parent.New(parent.Options{Approvals: parent.Allow})
			})
			names := strings.NewReplacer("OUTSIDE", s.outside, "WORK", s.dir)
			got := run(t.Context(), s.Env, call("shell", "command", names.Replace(tt.command)))
			got = strings.NewReplacer(s.outside, "OUTSIDE", s.dir, "WORK").Replace(got)
			last := got[strings.LastIndex(got, "\n")+1:]
			if hinted := strings.HasPrefix(last, "[likely the walls"); hinted != (tt.want != "") || !strings.Contains(last, tt.want) {
				t.Errorf("got %q, want %q in the last line", got, tt.want)
			}
		})
	}
}
