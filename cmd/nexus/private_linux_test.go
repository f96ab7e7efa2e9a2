package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/child/sandbox"
	"nexus.internal/cmd/internal/config"
)

// An agent that worked in the home, or above it, could write itself a key or a
// record of what others had done. Whatever a server that was used keeps there is out
// of its bounds, and what is new there, too.
func TestHomeOfAUsedServerIsPrivate(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"user","cwd":%q,"limits":{"tokens":1000000}}`, s.cwd))
	s.call("/", "create_agent", `{"agent_id":".temporary"}`)
	s.send("user", "hello")
	s.send(".temporary", "hello")
	s.call("/", "create_key", `{"scope":"read"}`)
	s.call("/", "clone_session", `{"src_session":"user","dest_session":"copy"}`)
	s.call("/", "validate_code", `{"code":"package p","language":"go"}`)
	s.call("/", "run_plan", `{"plan":{"tasks":[{"id":"a","type":"testing","description":"x"}]},"agents":["user"],"request_id":"P"}`)

	for _, cwd := range []string{filepath.Dir(s.home)} {
		for _, preset := range []string{"sandboxed", "trusted"} {
			agent := "evil-" + filepath.Base(cwd) + "-" + preset
			if answer := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"cwd":%q,"preset":%q}`, agent, cwd, preset)); gjson.Get(answer, "error").Exists() {
				t.Fatal(answer)
			}
			var seen []string
			for _, e := range entriesOf(t, s.home) {
				seen = append(seen, e.Name())
				path := filepath.Join(s.home, e.Name())
				if e.IsDir() {
					if !slices.Contains(config.OwnDirs, e.Name()) {
						t.Errorf("%s is not among the directories that nobody works in", e.Name())
					}
					path = filepath.Join(path, "new")
				}
				s.wantPrivate(agent, path)
			}
			for _, want := range []string{"audit.jsonl", "audit-limited.jsonl", "audit-excess.jsonl", "keys.json", "plans", "run", "sessions", "cache", "logs"} {
				if !slices.Contains(seen, want) {
					t.Errorf("the server was not used enough: no %s among %v", want, seen)
				}
			}
			s.wantPrivate(agent, filepath.Join(s.home, "new"))
			if preset == "sandboxed" && sandbox.Supported() == nil {
				s.send(agent, "run for f in "+s.home+"/* "+s.home+"/new; do echo evil >> $f; echo evil > $f/new; mv $f $f.old; rm -r $f; done")
			}
		}
	}
	link := filepath.Join(s.cwd, "link")
	if err := os.Symlink(s.home, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range append([]string{".", "sessions/.."}, config.OwnDirs...) {
		if err := os.MkdirAll(filepath.Join(s.home, dir), 0o700); err != nil { // not every server makes them all
			t.Fatal(err)
		}
		for _, cwd := range []string{s.home + "/" + dir, link + "/" + dir} {
			answer := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"within","cwd":%q}`, filepath.Clean(cwd)))
			if !strings.HasSuffix(gjson.Get(answer, "error.message").Str, "is out of bounds: it belongs to nexus itself") {
				t.Errorf("%s: %s", cwd, answer)
			}
		}
	}
	s.end()
	if err := filepath.WalkDir(s.home, func(path string, e os.DirEntry, err error) error {
		if err == nil && (strings.HasPrefix(e.Name(), "new") || strings.HasSuffix(e.Name(), ".old")) {
			t.Errorf("an agent made %s", path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"audit.jsonl", "audit-limited.jsonl", "audit-excess.jsonl", "keys.json"} {
		if text, err := os.ReadFile(filepath.Join(s.home, name)); err != nil || strings.Contains(string(text), "evil\n") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	s.again() // on what is there
	s.end()
}

// wantPrivate says that the agent could read or write at path.
func (s *live) wantPrivate(agent, path string) {
	s.Helper()
	for _, call := range []string{"read " + path, "write " + path + ": evil"} {
		if got := s.send(agent, call); !strings.Contains(got, "is out of bounds: it belongs to nexus itself") {
			s.Errorf("%s: %s: %s", agent, call, got)
		}
	}
}

func entriesOf(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// What agents keep for a while lay in TMPDIR, and an agent that worked above it
// took the sockets of others over and changed their spilled output. It lies in
// the home, out of bounds for all, and goes with its process.
func TestNothingOfAgentsInTMPDIR(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TMPDIR="+temp) })
	s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"victim","cwd":%q,"preset":"sandboxed"}`, s.cwd))
	scratch, sockets := filepath.Join(s.home, "run", "scratch"), filepath.Join(s.home, "run", "sockets")
	var found []string
	if sandbox.Supported() == nil {
		answer := s.send("victim", "run echo $TMPDIR; seq 20000")
		kept := regexp.MustCompile(regexp.QuoteMeta(scratch) + `/\w+/kept/shell-[\w-]+\.txt`).FindString(answer)
		if kept == "" || !strings.Contains(answer, filepath.Dir(filepath.Dir(kept))+"/temp/") {
			t.Fatalf("its directories are not in the home: %.300s", answer)
		}
		if got := s.send("victim", "read "+kept); !strings.Contains(got, `\n2000\n`) {
			t.Errorf("its own output: %.300s", got)
		}
		found = append(found, kept)
	}
	open, err := filepath.Glob(filepath.Join(sockets, "*", "*"))
	if err != nil || len(open) != 1 {
		t.Fatalf("sockets %v, %v", open, err)
	}
	if left := entriesOf(t, temp); len(left) > 0 {
		t.Errorf("in TMPDIR: %v", left)
	}
	for _, preset := range []string{"sandboxed", "trusted"} {
		s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"cwd":%q,"preset":%q}`, preset, filepath.Dir(s.home), preset))
		for _, path := range append(found, open...) {
			s.wantPrivate(preset, path)
		}
	}
	if sandbox.Supported() == nil {
		before := strings.Join(append(found, open...), " ")
		if got := s.send("sandboxed", "run for f in "+before+"; do head -c 100 $f; echo evil > $f; mv $f $f.old; rm $f; done; exit 0"); strings.Contains(got, "1\n2\n") {
			t.Errorf("it read another's output: %s", got)
		}
		if got := s.send("victim", "read "+found[0]); !strings.Contains(got, `\n2000\n`) || strings.Contains(got, "evil") {
			t.Errorf("its own output afterwards: %.300s", got)
		}
	}

	_ = s.cmd.Process.Kill() // it runs
	_ = s.cmd.Wait()
	s.again()
	eventually(t, "only what the living keep is there after a kill", func() (string, error) { // the rest is removed while the server runs
		if left, open := entriesOf(t, scratch), entriesOf(t, sockets); len(left) > 0 || len(open) != 1 {
			return "", fmt.Errorf("%s holds %v, %s %v", scratch, left, sockets, open)
		}
		return "", nil
	})
	s.send("victim", "hello")
	s.end()
	for _, dir := range []string{scratch, sockets} {
		if left := entriesOf(t, dir); len(left) > 0 {
			t.Errorf("%s holds %v at the end", dir, left)
		}
	}
}
