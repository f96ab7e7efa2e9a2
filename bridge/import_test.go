package bridge_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/plan"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// savedIn puts a session into a home: of that id, and created by an agent of that name unless that is "".
func savedIn(t *testing.T, home, name, id, creator string) {
	t.Helper()
	c := sessions.New(home, nil)
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	settings := transcript.Settings{At: begun}
	if creator != "" {
		settings.ParentAgentID = &creator
	}
	line, err := transcript.Append(nil, transcript.Header{Version: transcript.Version, SessionID: id, Name: name, CreatedAt: begun})
	if err == nil {
		line, err = transcript.Append(append(line, '\n'), settings)
	}
	if err == nil {
		err = os.MkdirAll(c.Dir(name), 0o700)
	}
	if err == nil {
		err = os.WriteFile(c.Path(name), append(line, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Of another home all comes but what the cluster has already, and what a name of the cluster would be mistaken for: listed with the reason, unless it is to be
// renamed. What was created by an agent that was renamed says so. A run is one machine's.
func TestImport(t *testing.T) {
	c, all := clusterOf(t, nil, "a", "b")
	a, b := all[0], all[1]
	a.create("elsewhere")
	home := t.TempDir()
	for _, one := range [][3]string{{"plain", "1", ""}, {"boss", "2", ""}, {"child", "3", "boss"}, {"elsewhere", "4", ""}, {"same", "5", "plain"}, {".temporary", "6", ""}} {
		savedIn(t, home, one[0], one[1], one[2])
	}
	savedIn(t, b.home, "boss", "another", "")
	savedIn(t, b.home, "same", "5", "plain")
	text := func(path, text string) {
		t.Helper()
		path = filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text("sessions/damaged.jsonl", "x\n")
	text("run/x", "")
	record := `{"type":"plan","version":1,"digest":"d"}` + "\n" + `{"type":"plan_end","status":"completed"}` + "\n"
	text("plans/run.jsonl", record)
	text("plans/other.jsonl", record)
	text("plans/tasks/"+strings.Repeat("0", 32)+".json", "{}\n")
	if err := os.MkdirAll(filepath.Join(b.home, "plans"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.home, "plans", "other.jsonl"), []byte(strings.Replace(record, `"d"`, `"e"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	before := listed(t, home)
	run := func(r *rig, o agents.BringOptions) (outcomes map[string]string) {
		t.Helper()
		done, err := r.server.Import(t.Context(), home, o)
		if err != nil {
			t.Fatal(err)
		}
		outcomes = map[string]string{}
		for _, s := range done.Sessions {
			outcomes[s.Session] = strings.TrimSpace(s.Outcome + " " + s.AgentID + " " + s.Reason)
		}
		for _, p := range done.Runs {
			outcomes["run "+p.PlanRunID] = strings.TrimSpace(p.Outcome + " " + p.Reason)
		}
		return outcomes
	}
	want := map[string]string{
		"plain": "comes plain", "same": "there same", "boss": "conflict boss the machine b has another session of that name",
		"child":     "conflict child it was created by boss, which another one is called here",
		"elsewhere": "conflict elsewhere the machine a has another session of that name",
		"damaged":   "refused damaged session damaged: line 1: this does not begin as a session does: invalid character 'x' at start of value at offset 0",
		"run run":   "comes", "run other": "conflict there is a run of that id with another plan",
	}
	if diff := cmp.Diff(want, run(b, agents.BringOptions{DryRun: true})); diff != "" {
		t.Errorf("a dry run (-want +got):\n%s", diff)
	}
	if b.sessions.Exists("plain") {
		t.Error("a dry run has brought something")
	}
	want["plain"], want["run run"] = "brought plain", "brought"
	if diff := cmp.Diff(want, run(b, agents.BringOptions{})); diff != "" {
		t.Errorf("the first time (-want +got):\n%s", diff)
	}
	want["plain"], want["run run"] = "there plain", "there it is on the machine b"
	want["boss"], want["child"], want["elsewhere"] = "brought old-boss", "brought child", "brought old-elsewhere"
	if diff := cmp.Diff(want, run(b, agents.BringOptions{Prefix: "old-"})); diff != "" {
		t.Errorf("renamed (-want +got):\n%s", diff)
	}
	child, err := b.sessions.Summary("child")
	if err != nil || *child.Settings.ParentAgentID != "old-boss" {
		t.Errorf("the creator of child: %v, %v", child.Settings.ParentAgentID, err)
	}
	// A run that another machine has is compared as one of this machine: else whoever removes the home loses one that only has its id.
	c.mu.Lock()
	c.runs["other"] = "b"
	c.mu.Unlock()
	for id, says := range map[string]string{"run": want["run run"], "other": want["run other"]} {
		if got := run(a, agents.BringOptions{DryRun: true}); got["run "+id] != says {
			t.Errorf("of a run that another machine has it says %q, want %q", got["run "+id], says)
		}
	}
	c.cut("b")
	if got := run(a, agents.BringOptions{DryRun: true}); !strings.HasPrefix(got["run run"], "conflict the machine b has a run of that id, and does not say whether it is this one: ") {
		t.Errorf("of a run that cannot be compared it says %q", got["run run"])
	}
	c.mend("b")
	if _, err := os.Stat(filepath.Join(b.home, "plans", "tasks", strings.Repeat("0", 32)+".json")); err != nil {
		t.Errorf("the result of a task: %v", err)
	}
	if status, err := plan.StatusOf(filepath.Join(b.home, "plans", "run.jsonl")); err != nil || status != "completed" {
		t.Errorf("the run that came is %q, %v", status, err)
	}
	if diff := cmp.Diff(before, listed(t, home)); diff != "" {
		t.Errorf("the other home does not stay as it was (-before +after):\n%s", diff)
	}
}

// listed are the files and directories of a home, with what files say.
func listed(t *testing.T, home string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			all[path] = ""
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A server in no cluster, and a machine that drains, take nothing.
func TestImportRefused(t *testing.T) {
	home := t.TempDir()
	savedIn(t, home, "plain", "1", "")
	c, all := clusterOf(t, nil, "a")
	c.drains["a"] = true
	for r, want := range map[*rig]string{rigged(t, nil): "in no cluster", all[0]: "drains"} {
		if _, err := r.server.Import(t.Context(), home, agents.BringOptions{}); err == nil || !strings.Contains(err.Error(), want) || r.sessions.Exists("plain") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A session that went on in its old home after it came is a conflict, as long as something was said there that the cluster does not have: whoever removes that home
// would lose it. One that went on in the cluster, or only has other settings, is there.
func TestImportOfWhatWentOn(t *testing.T) {
	_, all := clusterOf(t, nil, "a")
	r, home := all[0], t.TempDir()
	says := func(home, name string, records ...transcript.Record) {
		t.Helper()
		file, err := os.OpenFile(sessions.New(home, nil).Path(name), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for _, record := range records {
			line, err := transcript.Append(nil, record)
			if err == nil {
				_, err = file.Write(append(line, '\n'))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	said := func(text string) transcript.Record {
		return transcript.Message{Message: protocol.Message{Role: protocol.RoleUser, Content: text, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}
	}
	for _, name := range []string{"same", "cluster", "home", "both", "settings"} {
		savedIn(t, home, name, name, "")
		says(home, name, said("My name is Alice"))
	}
	savedIn(t, home, "made", "made", "home") // by one of them
	run := func(o agents.BringOptions) map[string]string {
		t.Helper()
		done, err := r.server.Import(t.Context(), home, o)
		if err != nil {
			t.Fatal(err)
		}
		outcomes := map[string]string{}
		for _, s := range done.Sessions {
			outcomes[s.Session] = strings.TrimSpace(s.Outcome + " " + s.AgentID + " " + s.Reason)
		}
		return outcomes
	}
	run(agents.BringOptions{})
	model := "another"
	says(home, "settings", transcript.Settings{Model: &model, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	says(home, "home", said("My name is Bob"), said("My name is Carol"))
	says(home, "both", said("My name is Bob"))
	says(r.home, "both", said("My name is Dave"), said("My name is Eve"))
	says(r.home, "cluster", said("My name is Bob"))
	want := map[string]string{
		"same": "there same", "settings": "there settings", "cluster": "there cluster", "made": "there made",
		"home": "conflict home it went on there since it came: the machine a has not all that was said in it",
		"both": "conflict both it went on there since it came: the machine a has not all that was said in it",
	}
	if diff := cmp.Diff(want, run(agents.BringOptions{})); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
	want["home"], want["both"] = "brought new-home", "brought new-both"
	if diff := cmp.Diff(want, run(agents.BringOptions{Prefix: "new-"})); diff != "" {
		t.Errorf("renamed (-want +got):\n%s", diff)
	}
	if saved, err := r.sessions.Summary("new-home"); err != nil || saved.Messages != 3 {
		t.Errorf("what came has %d messages, %v", saved.Messages, err)
	}
	want["home"], want["both"] = "there new-home", "there new-both"
	if diff := cmp.Diff(want, run(agents.BringOptions{Prefix: "new-"})); diff != "" {
		t.Errorf("once more (-want +got):\n%s", diff)
	}
}
