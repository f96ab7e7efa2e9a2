//go:build unix

package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge/agents"
)

// Whatever stands among the sessions and the records of runs of another home is listed with what becomes of it, by a dry run as by the import, and nothing of it is
// followed, waited for, read though it is too large, or printed as it stands.
func TestImportHostile(t *testing.T) {
	_, all := clusterOf(t, nil, "a")
	r, home := all[0], t.TempDir()
	in := func(path ...string) string { return filepath.Join(append([]string{home}, path...)...) }
	for _, name := range []string{"fine", "piped", "linked", "huge", "vast"} {
		savedIn(t, home, name, name, "")
	}
	savedIn(t, r.home, "vast", "vast", "")
	image := strings.Repeat("0a", 32)
	outside := filepath.Join(t.TempDir(), "outside.jsonl")
	record := `{"type":"plan","version":1,"digest":"d"}` + "\n"
	forged := record + `{"type":"task_end","end":{"task_id":"a","status":"success","agent_id":"../../../etc/x\u001b[31m","request_id":"forged/a"}}` + "\n"
	var errs []error
	for path, text := range map[string]string{
		in("sessions", "fine.files", image): "image", in("sessions", "fine.files", "x.sh"): "program", in("sessions", "notes.txt"): "x", in("sessions", "a b.jsonl"): "x",
		in("sessions", "\x1b[31m\xff.jsonl"): "x", in("sessions", ".temp.jsonl"): "x", in("sessions", "alone.records", "x"): "x", in("sessions", ".cut-off"): "x",
		in("plans", "run.jsonl"): record, in("plans", "forged.jsonl"): forged, in("plans", "a b.jsonl"): "x", in("plans", "notes.txt"): "x", in("plans", ".cut-off"): "x",
		in("plans", "tasks", strings.Repeat("1", 32)+".json"): "{}", in("plans", "tasks", "x.json"): "{}", in("plans", "tasks", strings.Repeat("2", 32)+".json"): "{}",
		outside: record,
	} {
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
	}
	for _, path := range []string{in("sessions", "piped.files"), in("sessions", "pipe.jsonl"), in("plans", "pipe.jsonl")} {
		errs = append(errs, unix.Mkfifo(path, 0o600))
	}
	for from, to := range map[string]string{in("sessions", "linked.files"): filepath.Dir(outside), in("sessions", "link.jsonl"): outside, in("plans", "link.jsonl"): outside} {
		errs = append(errs, os.Symlink(to, from))
	}
	for _, path := range []string{in("sessions", "huge.jsonl"), r.sessions.Path("vast"), in("plans", "tasks", strings.Repeat("2", 32)+".json")} {
		errs = append(errs, os.Truncate(path, 300<<30))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	run := func(o agents.BringOptions) map[string]string {
		t.Helper()
		done, err := r.server.Import(t.Context(), home, o)
		if err != nil {
			t.Fatal(err)
		}
		outcomes := map[string]string{}
		for _, s := range done.Sessions {
			outcomes[s.Session] = s.Outcome + " " + s.Reason
		}
		for _, p := range done.Runs {
			outcomes["run "+p.PlanRunID] = p.Outcome + " " + p.Reason
		}
		for name, outcome := range outcomes {
			if i := strings.IndexFunc(name+outcome, func(c rune) bool { return c < ' ' || c == utf8.RuneError }); i >= 0 {
				t.Errorf("%q is %q", name, outcome)
			}
			outcomes[name], _, _ = strings.Cut(strings.TrimSpace(outcome), ": ") // the reason's own reason is the system's
		}
		return outcomes
	}
	want := map[string]string{
		"fine": "comes", "piped": "refused session piped", "linked": "refused session linked", "huge": "refused session huge",
		"vast": "conflict the machine a has a session of that name that is too large to be compared",
		"pipe": "refused is not a regular file", "link": "refused is not a regular file",
		`"notes.txt"`: "refused no file of a session may have that name", `"a b.jsonl"`: "refused no session may have that name",
		`"\x1b[31m\xff.jsonl"`: "refused no session may have that name", `".temp.jsonl"`: "refused no session may have that name",
		"run run": "comes", "run forged": "refused the record of the run is damaged", "run pipe": "refused the record of the run is damaged", "run link": "refused the record of the run is damaged",
		`run "a b.jsonl"`: "refused no record of a run may have that name", `run "notes.txt"`: "refused no record of a run may have that name",
	}
	if diff := cmp.Diff(want, run(agents.BringOptions{DryRun: true})); diff != "" {
		t.Errorf("a dry run (-want +got):\n%s", diff)
	}
	want["fine"], want["run run"] = "brought", "brought"
	if diff := cmp.Diff(want, run(agents.BringOptions{})); diff != "" {
		t.Errorf("an import (-want +got):\n%s", diff)
	}
	for dir, want := range map[string][]string{"sessions/fine.files": {image}, "plans": {"run.jsonl", "tasks"}, "plans/tasks": {strings.Repeat("1", 32) + ".json"}} {
		var got []string
		entries, err := os.ReadDir(filepath.Join(r.home, dir))
		for _, entry := range entries {
			got = append(got, entry.Name())
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", dir, err, diff)
		}
	}
}

// Two sessions of another home do not get one name here: the dry run says so, too.
func TestImportRenamedOntoAnother(t *testing.T) {
	_, all := clusterOf(t, nil, "a")
	r, home := all[0], t.TempDir()
	savedIn(t, home, "x", "1", "")
	savedIn(t, home, "old-x", "2", "")
	savedIn(t, r.home, "x", "3", "")
	for _, dry := range []bool{true, false} {
		done, err := r.server.Import(t.Context(), home, agents.BringOptions{Prefix: "old-", DryRun: dry})
		if err != nil || len(done.Sessions) != 2 || done.Sessions[1].Outcome != agents.BringConflict || dry && done.Sessions[1].Reason != "old-x gets that name" {
			t.Errorf("dry %v: %+v, %v", dry, done.Sessions, err)
		}
	}
}

// An import ends with its caller, or with the server, before it has read what there is, and says which.
func TestImportEnds(t *testing.T) {
	_, all := clusterOf(t, nil, "a")
	r, home := all[0], t.TempDir()
	savedIn(t, home, "x", "1", "")
	gone := errors.New("the caller has gone")
	for _, dry := range []bool{true, false} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		done, err := r.server.Import(ctx, home, agents.BringOptions{DryRun: dry})
		if !errors.Is(err, gone) || len(done.Sessions) > 0 || r.sessions.Exists("x") {
			t.Errorf("dry %v: %v, %v", dry, fmt.Sprint(done.Sessions), err)
		}
	}
}
