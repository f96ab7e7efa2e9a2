package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// site is a directory with files, as they are: each path below it, with its mode and text.
func siteOf(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || path == dir {
			return err
		}
		line := strings.TrimPrefix(path, dir+"/") + " " + info.Mode().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(text)
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// undoer is a child that carries out calls by its scenario, in a home and a working directory.
type undoer struct {
	t          *testing.T
	home, work string
	args       []string
	p          *process
	n          int
}

// newUndoer starts a child with turns, by what the prompt says.
func newUndoer(t *testing.T, preset string, turns map[string][]string) *undoer {
	u := &undoer{t: t, home: t.TempDir(), work: t.TempDir()}
	var play []string
	for match, calls := range turns {
		var steps []string
		for _, call := range calls {
			name, input, _ := strings.Cut(call, " ")
			if name == "crash" {
				steps = append(steps, `{"crash":"kill"}`)
				continue
			}
			steps = append(steps, fmt.Sprintf(`{"tool":{"name":%q,"input":%s}}`, name, strings.ReplaceAll(input, "WORK", u.work)))
		}
		play = append(play, fmt.Sprintf(`{"match":%q,"steps":[%s]}`, match, strings.Join(append(steps, `{"text":"done"}`), ",")))
	}
	scenario := filepath.Join(u.home, "scenario.json")
	if err := os.WriteFile(scenario, []byte(`{"turns":[`+strings.Join(play, ",")+`],"after":"offline"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	u.args = []string{"--scenario", scenario, "--session-dir", filepath.Join(u.home, "sessions"), "--preset", preset}
	u.p = startChild(t, u.home, append(u.args, "--session", "s", "--cwd", u.work)...)
	return u
}

// again kills the child and goes on with its session.
func (u *undoer) again() {
	u.t.Helper()
	if err := u.p.cmd.Process.Kill(); err != nil {
		u.t.Fatal(err)
	}
	u.goOn()
}

// goOn goes on with the session of a child that is about to end.
func (u *undoer) goOn() {
	u.t.Helper()
	u.p.wait()
	u.p = startChild(u.t, u.home, append(u.args, "--continue", "s", "--cwd", u.work)...)
}

func (u *undoer) say(message string) {
	u.t.Helper()
	u.n++
	u.p.send(fmt.Sprintf(`{"type":"prompt","id":"%d","message":%q}`, u.n, message))
	u.p.want("type", "agent_end")
}

// undo takes the last turn back with its files.
func (u *undoer) undo() (restored []string, left map[string]string, others []string) {
	u.t.Helper()
	u.n++
	id := fmt.Sprint("u", u.n)
	u.p.send(`{"type":"undo","id":"` + id + `","files":true}`)
	answer := u.p.want("id", id)
	if !answer.Get("undone").Bool() {
		u.t.Fatalf("undo: %s", answer.Raw)
	}
	left = map[string]string{}
	for _, l := range answer.Get("files.left").Array() {
		left[u.relative(l.Get("path").String())] = l.Get("reason").String()
	}
	for _, path := range answer.Get("files.restored").Array() {
		restored = append(restored, u.relative(path.String()))
	}
	for _, name := range answer.Get("files.not_undone").Array() {
		others = append(others, name.String())
	}
	return restored, left, others
}

func (u *undoer) relative(path string) string { return strings.TrimPrefix(path, u.work+"/") }

func (u *undoer) write(path, text string, mode os.FileMode) {
	u.t.Helper()
	if err := os.WriteFile(filepath.Join(u.work, path), []byte(text), mode); err != nil {
		u.t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(u.work, path), mode); err != nil { // under any umask
		u.t.Fatal(err)
	}
}

// everything are changes of all kinds.
var everything = []string{
	`write_file {"path":"new/deep/a.txt","content":"one"}`,
	`edit_file {"path":"new/deep/a.txt","old_text":"one","new_text":"two"}`,
	`edit_file {"path":"run.sh","old_text":"1","new_text":"2"}`,
	`edit_file {"path":"run.sh","old_text":"2","new_text":"3"}`,
	`move_file {"from":"run.sh","to":"bin/run.sh"}`,
	`copy_file {"from":"old.txt","to":"copy.txt"}`,
	`delete_file {"path":"old.txt"}`,
	`write_file {"path":"old.txt","content":"another"}`,
	`move_file {"from":"copy.txt","to":"target.txt","overwrite":true}`,
	`delete_file {"path":"empty"}`,
	`apply_patch {"patch":"*** Begin Patch\n*** Update File: kept.txt\n@@\n-k\n+K\n*** Add File: p.txt\n+p\n*** Delete File: gone.txt\n*** End Patch\n"}`,
}

func (u *undoer) prepare() []string {
	u.t.Helper()
	u.write("old.txt", "old\n", 0o640)
	u.write("run.sh", "echo 1\n", 0o750)
	u.write("target.txt", "target", 0o600)
	u.write("kept.txt", "k\n", 0o644)
	u.write("gone.txt", "g\n", 0o444|0o200)
	if err := os.Mkdir(filepath.Join(u.work, "empty"), 0o711); err != nil {
		u.t.Fatal(err)
	}
	return siteOf(u.t, u.work)
}

// A turn's changes are taken back, after a kill as well.
func TestUndoFiles(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
			u := newUndoer(t, "trusted", map[string][]string{"go": everything})
			before := u.prepare()
			u.say("go")
			if after := siteOf(t, u.work); slices.Equal(after, before) || len(after) < len(before) {
				t.Fatalf("nothing was changed: %q", after)
			}
			if killed {
				u.again()
			}
			restored, left, others := u.undo()
			if after := siteOf(t, u.work); !slices.Equal(after, before) {
				t.Errorf("after undo there are\n%s\nwant\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
			}
			if len(left) > 0 || len(others) > 0 || len(restored) != 10 {
				t.Errorf("restored %q, left %q, not undone %q", restored, left, others)
			}
			if kept, err := os.ReadDir(filepath.Join(u.home, "sessions", "s.undo")); err == nil {
				t.Errorf("%d files are kept of a turn that is gone", len(kept))
			}
		})
	}
}

// A turn that a kill ended in its middle is taken back, and several turns one by one, each to what was before it.
func TestUndoFilesOfSeveralTurns(t *testing.T) {
	u := newUndoer(t, "trusted", map[string][]string{
		"first":  {`write_file {"path":"a.txt","content":"1"}`, `write_file {"path":"b.txt","content":"1"}`},
		"second": {`edit_file {"path":"a.txt","old_text":"1","new_text":"2"}`},
		"third":  {`edit_file {"path":"a.txt","old_text":"2","new_text":"3"}`, `delete_file {"path":"b.txt"}`, `crash {}`},
	})
	var sites [][]string
	for _, turn := range []string{"first", "second"} {
		sites = append(sites, siteOf(t, u.work))
		u.say(turn)
		u.again()
	}
	sites = append(sites, siteOf(t, u.work))
	u.p.send(`{"type":"prompt","id":"k","message":"third"}`)
	u.goOn() // it kills itself
	for i, before := range slices.Backward(sites) {
		if _, left, _ := u.undo(); len(left) > 0 {
			t.Errorf("undo of turn %d leaves %q", i, left)
		}
		if after := siteOf(t, u.work); !slices.Equal(after, before) {
			t.Errorf("before turn %d: %q, want %q", i, after, before)
		}
	}
}

// What somebody else has changed since stays, and what the agent may not write any more; programs
// are told of.
func TestUndoLeavesOthersWork(t *testing.T) {
	u := newUndoer(t, "yolo", map[string][]string{"go": {
		`write_file {"path":"a.txt","content":"mine"}`, `write_file {"path":"b.txt","content":"mine"}`, `write_file {"path":"c.txt","content":"mine"}`,
		`write_file {"path":"dir/d.txt","content":"mine"}`, `shell {"command":"echo x > e.txt"}`, `write_file {"path":"link/f.txt","content":"mine"}`,
	}})
	outside := t.TempDir()
	u.write("b.txt", "before", 0o600)
	u.say("go")
	u.write("a.txt", "yours", 0o600)
	if err := os.Remove(filepath.Join(u.work, "c.txt")); err != nil {
		t.Fatal(err)
	}
	u.write("dir/yours.txt", "yours", 0o600)
	if err := os.Rename(filepath.Join(u.work, "link"), filepath.Join(u.work, "was")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "f.txt"), []byte("a third's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(u.work, "link")); err != nil {
		t.Fatal(err)
	}
	restored, left, others := u.undo()
	want := map[string]string{"a.txt": "something else has changed it since", "link/f.txt": "a symbolic link leads elsewhere now"}
	if fmt.Sprint(left) != fmt.Sprint(want) || fmt.Sprint(restored) != "[b.txt c.txt dir/d.txt]" || fmt.Sprint(others) != "[shell]" {
		t.Errorf("restored %q, left %q, not undone %q", restored, left, others)
	}
	got := strings.Join(siteOf(t, u.work), "\n")
	for _, line := range []string{"a.txt -rw------- yours", "b.txt -rw------- before", "dir/yours.txt -rw------- yours", "e.txt "} {
		if !strings.Contains(got, line) {
			t.Errorf("there is no %q in\n%s", line, got)
		}
	}
	if text, err := os.ReadFile(filepath.Join(outside, "f.txt")); err != nil || string(text) != "a third's" {
		t.Errorf("behind the link is %q, %v", text, err)
	}
}

// What a narrower preset does not let the agent write stays; a later prompt goes on as before.
func TestUndoStaysWithinTheWalls(t *testing.T) {
	outside := t.TempDir()
	u := newUndoer(t, "yolo", map[string][]string{"go": {
		`write_file {"path":"` + outside + `/a.txt","content":"mine"}`, `write_file {"path":"in.txt","content":"mine"}`,
	}})
	u.say("go")
	u.p.send(`{"type":"set_permissions","id":"p","preset":"sandboxed"}`)
	u.p.want("id", "p")
	restored, left, _ := u.undo()
	if fmt.Sprint(restored) != "[in.txt]" || !strings.Contains(left[filepath.Join(outside, "a.txt")], "is outside the working directory") {
		t.Errorf("restored %q, left %q", restored, left)
	}
	if _, err := os.Stat(filepath.Join(outside, "a.txt")); err != nil {
		t.Error(err)
	}
	u.say("echo on")
}

// Without files, they stay, and so do they where the turn that made them is not the last one.
func TestUndoWithoutFiles(t *testing.T) {
	u := newUndoer(t, "trusted", map[string][]string{"go": {`write_file {"path":"a.txt","content":"mine"}`}})
	u.say("go")
	u.p.send(`{"type":"undo","id":"plain"}`)
	if got := u.p.want("id", "plain"); got.Get("files").Exists() || !got.Get("undone").Bool() {
		t.Errorf("undo answers %s", got.Raw)
	}
	if got := siteOf(t, u.work); len(got) != 1 {
		t.Errorf("there are %q", got)
	}
	u.say("echo nothing")
	if restored, left, others := u.undo(); len(restored)+len(left)+len(others) > 0 {
		t.Errorf("restored %q, left %q, not undone %q", restored, left, others)
	}
	u.p.send(`{"type":"new_session","id":"n"}`)
	u.p.want("id", "n")
	if _, err := os.Stat(filepath.Join(u.home, "sessions", "s.undo")); !os.IsNotExist(err) {
		t.Errorf("a new session keeps what the earlier one did: %v", err)
	}
}

// What the permissions deny by now stays denied to undo, by the rules for the tool that made a change: else a program
// that may only ask for undo writes files of an agent whose owner took that from it.
func TestUndoKeepsToTheToolsRules(t *testing.T) {
	writers := []string{"write_file", "edit_file", "apply_patch", "move_file", "copy_file", "delete_file"}
	denied := map[string]string{}
	for _, name := range writers {
		denied[name] = `"` + name + `":{"mode":"deny"}`
	}
	all := strings.Join(slices.Sorted(maps.Values(denied)), ",")
	const patch = `apply_patch {"patch":"*** Begin Patch\n*** Delete File: b.txt\n*** End Patch\n"}`
	for _, tt := range []struct{ name, permissions, stays string }{
		{"all as before", `"tools":{}`, ""},
		{"all disabled", `"disabled_tools":["` + strings.Join(writers, `","`) + `"]`, "write_file is disabled for this agent"},
		{"all denied", `"tools":{` + all + `}`, "the rules of this agent deny write_file"},
		{"the tool denied", `"tools":{` + denied["edit_file"] + `}`, "the rules of this agent deny edit_file"},
		{"what the patch did denied", `"tools":{` + denied["delete_file"] + `}`, "the rules of this agent deny apply_patch"},
		{"another tool denied", `"tools":{` + denied["move_file"] + `}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := newUndoer(t, "trusted", map[string][]string{"go": {
				`write_file {"path":"w.txt","content":"mine"}`, `edit_file {"path":"a.txt","old_text":"before","new_text":"after"}`, patch,
			}})
			u.write("a.txt", "before\n", 0o600)
			u.write("b.txt", "before\n", 0o600)
			before := siteOf(t, u.work)
			u.say("go")
			changed := siteOf(t, u.work)
			u.p.send(`{"type":"set_permissions","id":"p","permissions":{"preset":"trusted",` + tt.permissions + `}}`)
			if answer := u.p.want("id", "p"); !answer.Get("ok").Bool() {
				t.Fatal(answer.Raw)
			}
			restored, left, _ := u.undo()
			after := siteOf(t, u.work)
			switch {
			case tt.stays == "":
				if !slices.Equal(after, before) || len(left) > 0 {
					t.Errorf("left %q; there are %q", left, after)
				}
			case !slices.Contains(slices.Collect(maps.Values(left)), tt.stays):
				t.Errorf("restored %q, left %q, want %q", restored, left, tt.stays)
			case len(left) == 3 && !slices.Equal(after, changed), len(left)+len(restored) != 3:
				t.Errorf("restored %q, left %q; there are %q", restored, left, after)
			}
		})
	}
}

// What was kept before the tool was named is taken back as long as any tool could write it.
func TestUndoOfChangesWithoutATool(t *testing.T) {
	for _, all := range []bool{false, true} {
		u := newUndoer(t, "trusted", map[string][]string{"go": {`write_file {"path":"a.txt","content":"mine"}`}})
		u.say("go")
		kept := filepath.Join(u.home, "sessions", "s.undo")
		entries, err := os.ReadDir(kept)
		if err != nil || len(entries) != 1 {
			t.Fatal(entries, err)
		}
		name := filepath.Join(kept, entries[0].Name())
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		earlier := strings.Replace(string(text), `"tool":"write_file"`, `"later":1`, 1)
		if err := os.WriteFile(name, []byte(earlier), 0o600); err != nil || earlier == string(text) {
			t.Fatal(err, string(text))
		}
		u.again()
		disabled := `"write_file","move_file","copy_file","delete_file","apply_patch"`
		if all {
			disabled += `,"edit_file"`
		}
		u.p.send(`{"type":"set_permissions","id":"p","permissions":{"preset":"trusted","disabled_tools":[` + disabled + `]}}`)
		u.p.want("id", "p")
		if restored, left, _ := u.undo(); len(restored) == 1 == all || left["a.txt"] == "" == all {
			t.Errorf("all disabled: %v; restored %q, left %q", all, restored, left)
		}
	}
}

// With unasked, what the preset asks about by now stays; without, it is taken back.
func TestUndoUnasked(t *testing.T) {
	for _, unasked := range []bool{true, false} {
		outside := t.TempDir()
		path := filepath.Join(outside, "a.txt")
		u := newUndoer(t, "trusted", map[string][]string{"go": {
			`write_file {"path":"` + path + `","content":"mine"}`, `write_file {"path":"in.txt","content":"mine"}`,
		}})
		u.p.send(`{"type":"set_permissions","id":"p","permissions":{"preset":"trusted","allowed_paths":["` + outside + `"]}}`)
		u.p.want("id", "p")
		u.say("go")
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
		u.p.send(`{"type":"set_permissions","id":"q","permissions":{"preset":"trusted"}}`)
		u.p.want("id", "q")
		u.p.send(fmt.Sprintf(`{"type":"undo","id":"u","files":true,"unasked":%t}`, unasked))
		files := u.p.want("id", "u").Get("files")
		_, err := os.Stat(path)
		if there := err == nil; there != unasked || files.Get("left.0.path").Exists() != unasked || unasked && !strings.Contains(files.Raw, "is outside the working directory") {
			t.Errorf("unasked %v: there %v, %s", unasked, there, files.Raw)
		}
		if _, err := os.Stat(filepath.Join(u.work, "in.txt")); !os.IsNotExist(err) {
			t.Errorf("unasked %v: what it may write unasked was not taken back: %s", unasked, files.Raw)
		}
	}
}
