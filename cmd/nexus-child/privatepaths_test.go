package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/child/sandbox"
)

// place makes files with their own names in them below dir.
func place(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		content := "secret of " + name
		if strings.HasSuffix(name, ".json") {
			content = "{}"
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A home below the working directory was within the agent's reach: it read the
// server's key, and wrote itself permissions for its next start.
func TestHomeIsPrivate(t *testing.T) {
	const ours = " is out of bounds: it belongs to nexus itself"
	for _, tt := range []struct {
		name, home, cwd, preset string // home and cwd below one directory
		private, open           []string
	}{
		{"below the work", ".nexus3", ".", "sandboxed", []string{".nexus3/server.key", ".nexus3/sessions/x.jsonl", ".nexus3/any"}, []string{"mine"}},
		{"below the work, trusted", ".nexus3", ".", "trusted", []string{".nexus3/server.key", ".nexus3/mcp.json"}, []string{"mine"}},
		{"the work itself", ".", ".", "sandboxed", []string{"server.key", "server-1234.key", "sessions/x.jsonl", "any", "new.json"}, nil},
		{"the work itself, trusted", ".", ".", "trusted", []string{"server.key", "sessions/x.jsonl", "any"}, nil},
		{"in a directory of nexus", ".", "run/work", "sandboxed", []string{"mine", "../temp/x", "../../any"}, nil},
		{"above the work", ".", "work", "trusted", []string{"../server.key", "../sessions/x.jsonl", "../any"}, []string{"mine"}},
		{"above the work, sandboxed", ".", "work", "sandboxed", []string{"../server.key", "../any"}, []string{"mine"}},
		{"yolo", ".nexus3", ".", "yolo", nil, []string{".nexus3/server.key"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			home, cwd := filepath.Join(top, tt.home), filepath.Join(top, tt.cwd)
			place(t, home, "config.json", "server.key", "server-1234.key", "sessions/x.jsonl", "run/temp/x", "any")
			place(t, cwd, "mine")
			p := startChild(t, home, "--cwd", cwd, "--preset", tt.preset, "--approvals", "allow", "--session", "own")
			for _, name := range tt.private {
				path := filepath.Join(cwd, name)
				if got := p.result("r", "read "+name); got != "read_file: "+path+ours {
					t.Errorf("read %s: %q", name, got)
				}
				if got := p.result("w", "write "+name+": evil"); got != "write_file: "+path+ours {
					t.Errorf("write %s: %q", name, got)
				}
				if sandbox.Supported() != nil {
					continue
				}
				if got := p.result("c", "run cat "+name+"; echo evil >> "+name); strings.Contains(got, "secret of") {
					t.Errorf("cat %s: %q", name, got)
				}
				if content, err := os.ReadFile(path); strings.Contains(string(content), "evil") {
					t.Errorf("%s was changed: %q, %v", name, content, err)
				}
			}
			for _, name := range tt.open {
				if got := p.result("r", "read "+name); !strings.Contains(got, "secret of") {
					t.Errorf("read %s: %q", name, got)
				}
				if sandbox.Supported() != nil {
					continue
				}
				if got := p.result("c", "run cat "+name); !strings.Contains(got, "secret of") {
					t.Errorf("cat %s: %q", name, got)
				}
			}
			p.send(`{"type":"get_state","id":"s"}`)
			if got := p.want("id", "s").Get("permissions").Raw; strings.Contains(got, "server.key") || strings.Contains(got, ".nexus3") {
				t.Errorf("shown: %s", got)
			}
			p.stdin.Close()
			p.wait()
		})
	}
}

// A session that is kept beside the home is out of reach, too.
func TestSessionIsPrivate(t *testing.T) {
	for _, where := range []string{".", "kept"} {
		cwd := t.TempDir()
		p := startChild(t, t.TempDir(), "--cwd", cwd, "--preset", "sandboxed", "--session-dir", filepath.Join(cwd, where), "--session", "a")
		name := filepath.Join(where, "a.jsonl")
		if got := p.result("1", "write "+name+": evil"); !strings.HasSuffix(got, "it belongs to nexus itself") {
			t.Errorf("%s: %q", name, got)
		}
		p.stdin.Close()
		p.wait()
	}
}

// What matters in the home stays private where it is a link to elsewhere.
func TestLinkedConfigurationIsPrivate(t *testing.T) {
	cwd := t.TempDir()
	place(t, cwd, "dotfiles/nexus.json", ".nexus3/any")
	if err := os.Symlink("../dotfiles/nexus.json", filepath.Join(cwd, ".nexus3", "config.json")); err != nil {
		t.Fatal(err)
	}
	p := startChild(t, filepath.Join(cwd, ".nexus3"), "--cwd", cwd)
	if got := p.result("1", "write dotfiles/nexus.json: {}"); !strings.HasSuffix(got, "it belongs to nexus itself") {
		t.Errorf("got %q", got)
	}
	p.stdin.Close()
	p.wait()
}

// A path that the session saved and that has become a link is not followed: the
// agent itself may have made it one.
func TestSavedPathThatIsALinkNow(t *testing.T) {
	home, sessions := t.TempDir(), t.TempDir()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	place(t, top, "work/mine", "outside/a")
	data := filepath.Join(top, "work", "data")
	p := startChild(t, home, "--session-dir", sessions, "--session", "a", "--cwd", filepath.Join(top, "work"),
		"--permissions", `{"preset":"sandboxed","allowed_paths":["`+data+`"]}`)
	p.stdin.Close()
	p.wait()
	if err := os.Symlink(filepath.Join(top, "outside"), data); err != nil {
		t.Fatal(err)
	}
	p = startChild(t, home, "--session-dir", sessions, "--continue", "a")
	if got := p.result("1", "read data/a"); got != "read_file: data/a leads out of what this agent may touch" {
		t.Errorf("got %q", got)
	}
	p.stdin.Close()
	p.wait()
}

// Whoever may write the home could run programs as its user: a child neither reads it nor
// writes there.
func TestHomeThatOthersMayWrite(t *testing.T) {
	home := t.TempDir()
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	p := command(t, home, nil, "--cwd", t.TempDir(), "--session", "a")
	p.cmd.Stdin = strings.NewReader("")
	if err := p.cmd.Run(); err == nil || !strings.Contains(p.stderr.String(), "run chmod go-w "+home) {
		t.Errorf("got %v: %s", err, p.stderr.String())
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Homes of other servers within an agent's reach are no more its business than its own:
// it could read their keys, and write what their agents start.
func TestOtherHomesArePrivate(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cwd, allowed := filepath.Join(top, "user"), filepath.Join(top, "allowed")
	for _, home := range []string{"user/h20", "user/other/.nexus3", "allowed/copy"} {
		place(t, filepath.Join(top, home), "run/lock", "sessions/x.jsonl", "logs/x.log", "server.key")
	}
	place(t, cwd, ".nexus3/server.key", "project/run/lock", "project/a")
	p := command(t, t.TempDir(), []string{"HOME=" + cwd, "PATH=" + os.Getenv("PATH")}, "--cwd", cwd, "--approvals", "allow",
		"--permissions", `{"preset":"sandboxed","allowed_paths":["`+allowed+`"]}`)
	p.start()
	for _, home := range []string{".nexus3", "h20", "other/.nexus3", "../allowed/copy"} {
		path := filepath.Join(cwd, home, "server.key")
		if got := p.result("r", "read "+path); got != "read_file: "+path+" is out of bounds: it belongs to nexus itself" {
			t.Errorf("read %s: %q", path, got)
		}
		evil := filepath.Join(cwd, home, "mcp.json")
		if got := p.result("w", "write "+evil+": {}"); !strings.HasSuffix(got, "it belongs to nexus itself") {
			t.Errorf("write %s: %q", evil, got)
		}
		if sandbox.Supported() != nil {
			continue
		}
		if got := p.result("c", "run cat "+path+"; echo evil > "+evil); strings.Contains(got, "secret of") {
			t.Errorf("cat %s: %q", path, got)
		}
		if _, err := os.Stat(evil); err == nil {
			t.Errorf("%s was made", evil)
		}
	}
	if got := p.result("o", "read project/a"); !strings.Contains(got, "secret of") {
		t.Errorf("what only has run/lock is no home: %q", got)
	}
	p.stdin.Close()
	p.wait()
}

// A home whose path leads through a linked directory, within the agent's reach, is out
// of bounds as any other, and programs run.
func TestHomeThroughALink(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cwd, elsewhere := filepath.Join(top, "work"), filepath.Join(top, "elsewhere")
	place(t, cwd, "mine", "inside/home/server.key")
	place(t, elsewhere, "home/server.key")
	for link, to := range map[string]string{"via": elsewhere, "vianear": filepath.Join(cwd, "inside"), "last": filepath.Join(elsewhere, "home")} {
		if err := os.Symlink(to, filepath.Join(cwd, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, home := range []string{"via/home", "vianear/home", "last"} {
		home = filepath.Join(cwd, home)
		p := command(t, home, []string{"HOME=" + filepath.Join(cwd, "via"), "PATH=" + os.Getenv("PATH")}, "--cwd", cwd, "--preset", "sandboxed", "--no-session")
		p.start()
		key := filepath.Join(home, "server.key")
		if got := p.result("r", "read "+key); !strings.HasPrefix(got, "read_file: ") {
			t.Errorf("read %s: %q", key, got)
		}
		if sandbox.Supported() == nil {
			if got := p.result("c", "run cat mine "+key); !strings.Contains(got, "secret of mine") || strings.Contains(got, "server.key\n") {
				t.Errorf("cat mine %s: %q", key, got)
			}
			if filepath.Base(home) == "last" {
				p.result("m", "run rm last")
				if _, err := os.Lstat(home); err != nil {
					t.Errorf("the home, which is a link, was removed: %v", err)
				}
			}
		}
		p.stdin.Close()
		p.wait()
	}
}
