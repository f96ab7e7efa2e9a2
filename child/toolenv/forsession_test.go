package toolenv_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

const beginPatch, endPatch = "*** Begin Patch\n", "*** End Patch"

// A question says what a yes for the session would cover where it offers one, and only there.
func TestAQuestionSaysWhatIsForTheSession(t *testing.T) {
	for _, tt := range []struct {
		name string
		call protocol.ToolCall
		want string // with OUT for the directory beside the agent's
	}{
		{"a read", call("read_file", "path", "../outside/secret.txt"), "read_file: all in OUT and below"},
		{"a list", call("list_directory", "path", "../outside"), "list_directory: all in OUT and below"},
		{"an edit", call("edit_file", "path", "../outside/secret.txt", "old_text", "a", "new_text", "b"), "edit_file: all in OUT and below"},
		{"a write", call("write_file", "path", "../outside/a", "content", "x"), "write_file, copy_file, patches that only add files: all in OUT and below"},
		{"a copy", call("copy_file", "from", "a", "to", "../outside/a"), "copy_file: all in OUT and below"},
		{"a move", call("move_file", "from", "a", "to", "../outside/a"), "move_file: all in WORK and below; all in OUT and below"},
		{"a deletion", call("delete_file", "path", "../outside/secret.txt"), "delete_file: all in OUT and below"},
		{"a patch that adds", call("apply_patch", "patch", beginPatch+"*** Add File: ../outside/b\n+x\n"+endPatch), "write_file, copy_file, patches that only add files: all in OUT and below"},
		{"a patch that deletes", call("apply_patch", "patch", beginPatch+"*** Delete File: ../outside/secret.txt\n"+endPatch), "apply_patch: all in OUT and below"},
		{"a page", call("web_fetch", "url", "https://example.com/a?b"), "web_fetch: all pages of example.com"},
		{"a command that could do anything", call("shell", "command", "$x"), ""},
		{"the top", call("list_directory", "path", "/"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, parent := asked(t, trusted)
				ctx, abort := context.WithCancel(t.Context())
				result := s.begin(ctx, tt.call)
				r := question(t, parent)
				want := strings.NewReplacer("OUT", s.outside, "WORK", s.dir).Replace(tt.want)
				if offered := slices.Contains(r.Decisions, protocol.AllowSession); r.ForSession != want || offered != (want != "") {
					t.Errorf("%q is said, want %q; the answers are %v", r.ForSession, want, r.Decisions)
				}
				abort()
				<-result
			})
		})
	}
}

// What is recorded is what was told, though the file is another kind of file when the answer comes.
func TestTheYesIsForWhatWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved []protocol.Allowance
		s, parent := asked(t, trusted, func(o *toolenv.Options) {
			o.Journal = saves(func(a protocol.Allowance) error { saved = append(saved, a); return nil })
		})
		dir := filepath.Join(s.outside, "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		result := s.begin(t.Context(), call("list_directory", "path", dir))
		r := question(t, parent)
		if want := "list_directory: all in " + dir + " and below"; r.ForSession != want {
			t.Errorf("%q is said, want %q", r.ForSession, want)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		answer(t, parent, r, protocol.AllowSession, "")
		<-result
		ended(t, parent)
		if diff := cmp.Diff([]protocol.Allowance{{Tool: "list_directory", Action: protocol.ActionRead, Dir: dir}}, saved); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}

// A yes for the session to a patch that only adds files is for what write_file does, and so for no deletion.
func TestAPatchThatAddsForTheSessionDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted)
		result := s.begin(t.Context(), call("apply_patch", "patch", beginPatch+"*** Add File: ../outside/a\n+x\n"+endPatch))
		answer(t, parent, question(t, parent), protocol.AllowSession, "")
		<-result
		ended(t, parent)
		s.want("added ../outside/b (1 line)\n", call("apply_patch", "patch", beginPatch+"*** Add File: ../outside/b\n+x\n"+endPatch))
		quiet(t, parent)
		for _, patch := range []string{"*** Delete File: ../outside/secret.txt\n", "*** Update File: ../outside/secret.txt\n-guess\n+x\n", "*** Update File: ../outside/secret.txt\n*** Move to: taken\n"} {
			result = s.begin(t.Context(), call("apply_patch", "patch", beginPatch+patch+endPatch))
			answer(t, parent, question(t, parent), protocol.Deny, "")
			<-result
			ended(t, parent)
		}
	})
}

// A program of another make has names of its own for what it does: what nexus cannot tell, the program remembers by its own option.
func TestAProgramsQuestionSaysWhatIsForTheSession(t *testing.T) {
	once := protocol.PermissionOption{ID: "y", Name: "Yes", Kind: protocol.AllowOnce}
	always := protocol.PermissionOption{ID: "a", Name: "Always\n\x1b[2K" + strings.Repeat("x", 500), Kind: protocol.AllowSession}
	named := `"Always\n\x1b[2K` + strings.Repeat("x", 186) + `…"`
	for _, tt := range []struct {
		name string
		call toolenv.ProgramCall
		want string
	}{
		{"anything", toolenv.ProgramCall{Action: protocol.ActionExternal, Options: []protocol.PermissionOption{once}}, ""},
		{"anything, which it remembers", toolenv.ProgramCall{Action: protocol.ActionExternal, Options: []protocol.PermissionOption{once, always}}, "what the program itself remembers by its option " + named},
		{"a file", toolenv.ProgramCall{Action: protocol.ActionWrite, Paths: []string{"../outside/a"}, Options: []protocol.PermissionOption{once}}, "Do: all in OUT and below"},
		{"a file and an option", toolenv.ProgramCall{Action: protocol.ActionWrite, Paths: []string{"../outside/a"}, Options: []protocol.PermissionOption{always}}, "Do: all in OUT and below; if an option of the program is named, also what the program remembers by it"},
		{"a tool that has the name of ours", toolenv.ProgramCall{Name: "apply_patch", Action: protocol.ActionWrite, Paths: []string{"../outside/a"}}, "apply_patch: all in OUT and below"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, parent := asked(t, trusted)
				ctx, abort := context.WithCancel(t.Context())
				c, done := tt.call, make(chan struct{})
				c.TurnID, c.ID, c.Input = "t1", "c1", jsontext.Value("{}")
				if c.Name == "" {
					c.Name = "Do"
				}
				go func() {
					defer close(done)
					_, _ = toolenv.ForProgram(s.Env, protocol.AgentProgram{}).Ask(ctx, c)
				}()
				r := question(t, parent)
				want := strings.ReplaceAll(tt.want, "OUT", s.outside)
				if offered := slices.Contains(r.Decisions, protocol.AllowSession); offered != (want != "") {
					t.Errorf("the answers are %v", r.Decisions)
				}
				if diff := cmp.Diff(want, r.ForSession); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
				abort()
				<-done
			})
		})
	}
}
