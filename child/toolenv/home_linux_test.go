package toolenv_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/child/parent"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

// homeSite is a site whose programs have a home of their own, of at most that many bytes. What
// asks is allowed.
func homeSite(t *testing.T, preset string, bytes uint64) (s *site, home string) {
	t.Helper()
	s = newSite(t, protocol.Permissions{Preset: preset}, func(o *toolenv.Options) {
		home = filepath.Join(filepath.Dir(o.Cwd), "a.home")
		o.Home, o.HomeBytes = home, bytes
		o.Parent = parent.New(parent.Options{Approvals: parent.Allow})
	})
	return s, home
}

// shell runs a command and returns its result.
func (s *site) shell(command string) string {
	s.t.Helper()
	return strings.ReplaceAll(run(s.t.Context(), s.Env, call("shell", "command", command)), s.dir, "WORK")
}

// A second build finds what the first one has compiled, and the second process of a session
// what the first one has built.
func TestASecondBuildIsWarm(t *testing.T) {
	for _, preset := range []string{"sandboxed", "trusted"} {
		t.Run(preset, func(t *testing.T) {
			s, home := homeSite(t, preset, 0)
			s.put(s.dir+"/go.mod", "module example.com/hello\n\ngo 1.24\n")
			s.put(s.dir+"/hello.go", "package hello\n\n// Hello needs no other package, so that nothing else is compiled.\nfunc Hello() string { return \"hello\" }\n")
			const build = "GOTOOLCHAIN=local go build -x . 2>&1 | grep -c '/compile '; true"
			if got := s.shell(build); !strings.HasPrefix(got, "1\n[exit status 0") {
				t.Fatalf("the first build: %s", got)
			}
			if got := s.shell(build); !strings.HasPrefix(got, "0\n[exit status 0") {
				t.Errorf("the second build: %s", got)
			}
			again := s.open(s.o)
			if got := run(t.Context(), again, call("shell", "command", build)); !strings.HasPrefix(got, "0\n[exit status 0") {
				t.Errorf("of the next process: %s", got)
			}
			if _, err := os.Stat(home + "/.cache/go-build/README"); err != nil {
				t.Error(err)
			}
		})
	}
}

// The home is HOME and has the caches, for as long as the session lasts. File tools may read
// it. Under yolo programs have the user's own, and what runs unasked because it only reads has none.
func TestHomeOfPrograms(t *testing.T) {
	user := t.TempDir()
	t.Setenv("HOME", user)
	if err := os.WriteFile(user+"/.gitconfig", []byte("[user]\n\tname = Ann\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const where = "echo $HOME $GOMODCACHE $npm_config_cache $PIP_CACHE_DIR $XDG_CACHE_HOME $GIT_CONFIG_GLOBAL; test -e kept"
	for _, tt := range []struct{ preset, want string }{
		{"sandboxed", "HOME HOME/.cache/go-mod HOME/.cache/npm HOME/.cache/pip HOME/.cache\n"},
		{"trusted", "HOME HOME/.cache/go-mod HOME/.cache/npm HOME/.cache/pip HOME/.cache USER/.gitconfig\n"},
		{"yolo", "USER\n"},
	} {
		t.Run(tt.preset, func(t *testing.T) {
			s, home := homeSite(t, tt.preset, 0)
			got := strings.NewReplacer(home, "HOME", user, "USER").Replace(s.shell(where + "; touch new"))
			if got != tt.want+"[exit status 0]" {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if tt.preset == "yolo" {
				return
			}
			s.shell("echo precious > $HOME/note && touch $HOME/.cache/x")
			if got := s.shell("cat ~/note; touch new"); got != "precious\n[exit status 0]" {
				t.Errorf("the next call: %q", got)
			}
			if got := run(t.Context(), s.Env, call("read_file", "path", home+"/note")); !strings.Contains(got, "precious") {
				t.Errorf("read_file: %q", got)
			}
			for _, c := range []protocol.ToolCall{
				call("write_file", "path", home+"/note", "content", "x"), call("read_file", "path", home+"/../outside/secret.txt"),
			} {
				if got := run(t.Context(), s.Env, c); tt.preset == "sandboxed" && !strings.Contains(got, "is outside the working directory") {
					t.Errorf("%s: %q", c.Name, got)
				}
			}
			if got := s.Rules("mcp_x"); got.Home != "" {
				t.Errorf("a server's programs have %q", got.Home)
			}
		})
	}
}

// Beyond its bound the home loses the caches that were used least recently, and says so. It
// keeps the others, and what lies beside the caches as long as that is enough.
func TestTheHomeIsBounded(t *testing.T) {
	s, home := homeSite(t, "sandboxed", 7<<19)
	if got := s.shell("cd && mkdir -p .cache/old .cache/new && head -c 1M /dev/zero | tee note .cache/new/a > .cache/old/a && touch -d 2001-01-01 .cache/old .cache/old/a && touch -d 2000-01-01 note"); got != "[exit status 0]" {
		t.Fatalf("within the bound: %q", got)
	}
	got := s.shell("head -c 1M /dev/zero > ~/.cache/new/b")
	if want := "\n[the home of this agent's programs held more than 3.5 MiB, so what was used least recently was removed: .cache/old (1.0 MiB); "; !strings.Contains(got, want) {
		t.Errorf("beyond the bound: %q, want %q", got, want)
	}
	if got := s.shell("ls -A ~ ~/.cache ~/.cache/new | xargs echo"); !strings.Contains(got, ".cache note ") || !strings.HasSuffix(got, ".cache: new "+home+"/.cache/new: a b\n[exit status 0]") {
		t.Errorf("left: %q", got)
	}
}

// What is too deep to be measured is removed for that, which the text says, and nothing else is: it
// once was of more than the bound, and all that was older went before it.
func TestWhatIsTooDeepIsRemoved(t *testing.T) {
	s, _ := homeSite(t, "sandboxed", 0)
	got := s.shell("cd; mkdir -p .cache/old d; touch -d 2001-01-01 .cache/old; cd d; for i in $(seq 130); do mkdir e && cd e; done")
	const deep = "directories nested more than 128 deep"
	if want := "\n[the home of this agent's programs held " + deep + ", which cannot be measured, so this was removed: d (" + deep + "); "; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := s.shell("ls -A ~ ~/.cache | xargs echo"); !strings.Contains(got, ".cache: old\n") || strings.Contains(got, " d ") {
		t.Errorf("left: %q", got)
	}
}

// Of much that is removed not all is named, and no name acts on the line.
func TestFewOfWhatIsRemovedAreNamed(t *testing.T) {
	s, _ := homeSite(t, "sandboxed", 1<<20)
	got := s.shell("cd; mkdir -p .cache; for i in $(seq 40); do head -c 40000 /dev/zero > .cache/$i; touch -d 2001-01-01 .cache/$i; done; " +
		"touch -d 2000-01-01 .cache/1; mv .cache/1 \"$(printf '.cache/a\\nb')\"; head -c 1M /dev/zero > .cache/new")
	if want := `was removed: ".cache/a\nb" (0.0 MiB), `; !strings.Contains(got, want) || strings.Count(got, "MiB), ") != 10 || !strings.Contains(got, "(0.0 MiB), and 31 more; ") {
		t.Errorf("got %q", got)
	}
}

// No link leads what empties caches out of the home, whatever a program makes there, and a
// directory that it has closed, or made deeper than a path, is counted and removed as well.
func TestEmptyingStaysInTheHome(t *testing.T) {
	for _, tt := range []struct{ name, command string }{
		{"caches that are a link", "rmdir .cache; mkdir x && head -c 2M /dev/zero > x/a; ln -s OUTSIDE .cache"},
		{"a cache that is a link", "ln -s OUTSIDE .cache/a; head -c 2M /dev/zero > .cache/b"},
		{"a link by a relative path", "ln -s ../../outside .cache/a; head -c 2M /dev/zero > .cache/b"},
		{"a closed cache", "mkdir .cache/a && head -c 2M /dev/zero > .cache/a/b && chmod 000 .cache/a"},
		{"a closed home", "head -c 2M /dev/zero > .cache/a; chmod 000 ."},
		{"a pipe", "mkfifo .cache/pipe; head -c 2M /dev/zero > .cache/a"},
		{"a deep cache", "cd .cache; for i in $(seq 300); do mkdir directory && cd directory; done"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, home := homeSite(t, "sandboxed", 1<<20)
			got := s.shell("cd; mkdir .cache; " + strings.ReplaceAll(tt.command, "OUTSIDE", s.outside))
			if !strings.Contains(got, " was removed: ") {
				t.Errorf("got %q", got)
			}
			if secret, err := os.ReadFile(s.outside + "/secret.txt"); string(secret) != "secret" {
				t.Errorf("outside: %q, %v", secret, err)
			}
			if got := s.shell("du -sk " + home + " | cut -f 1"); len(strings.Fields(got)[0]) > 3 {
				t.Errorf("it has %s KiB left", got)
			}
		})
	}
}
