package toolenv_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

// Who allows write_file for the session allows no deletion, no move, whose source could then be read in the
// working directory, and no patch that does more than to add files. A copy and new files are what write_file does.
func TestWriteForTheSessionDeletesNothing(t *testing.T) {
	const begin, end = "*** Begin Patch\n", "*** End Patch"
	for _, tt := range []struct {
		name string
		call protocol.ToolCall
		asks bool
	}{
		{"another write", call("write_file", "path", "../outside/b", "content", "x"), false},
		{"a copy", call("copy_file", "from", "mine", "to", "../outside/b"), false},
		{"a patch that adds", call("apply_patch", "patch", begin+"*** Add File: ../outside/b\n+x\n"+end), false},
		{"a deletion", call("delete_file", "path", "../outside/secret.txt"), true},
		{"a move out of there", call("move_file", "from", "../outside/secret.txt", "to", "taken"), true},
		{"a move to there", call("move_file", "from", "mine", "to", "../outside/secret.txt", "overwrite", true), true},
		{"a patch that deletes", call("apply_patch", "patch", begin+"*** Delete File: ../outside/secret.txt\n"+end), true},
		{"a patch that adds and deletes", call("apply_patch", "patch", begin+"*** Add File: ../outside/b\n+x\n*** Delete File: ../outside/secret.txt\n"+end), true},
		{"a patch that moves", call("apply_patch", "patch", begin+"*** Update File: ../outside/secret.txt\n*** Move to: taken\n"+end), true},
		{"a patch that changes, and so reads", call("apply_patch", "patch", begin+"*** Update File: ../outside/secret.txt\n-guess\n+x\n"+end), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, parent := asked(t, trusted)
				s.put(s.dir+"/mine", "mine")
				result := s.begin(t.Context(), call("write_file", "path", "../outside/a", "content", "1"))
				answer(t, parent, question(t, parent), protocol.AllowSession, "")
				<-result
				ended(t, parent)

				result = s.begin(t.Context(), tt.call)
				synctest.Wait()
				select {
				case got := <-result:
					if tt.asks || strings.Contains(got, "allowed") {
						t.Errorf("without a question: %s", got)
					}
					return
				default:
				}
				r := question(t, parent)
				if !tt.asks {
					t.Errorf("asked: %s", r.Reason)
				}
				answer(t, parent, r, protocol.Deny, "")
				<-result
				ended(t, parent)
				if content, err := os.ReadFile(s.outside + "/secret.txt"); string(content) != "secret" {
					t.Errorf("the file holds %q, %v", content, err)
				}
			})
		})
	}
}

// A yes for the session to a move, a deletion or a patch is for that tool, in the directories of its files.
func TestForTheSessionOfWhatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted)
		for _, name := range []string{"a", "b", "c"} {
			s.put(filepath.Join(s.outside, name), name)
		}
		result := s.begin(t.Context(), call("move_file", "from", "../outside/a", "to", "a"))
		answer(t, parent, question(t, parent), protocol.AllowSession, "")
		if got := <-result; got != "moved ../outside/a to a" {
			t.Errorf("got %q", got)
		}
		ended(t, parent)
		s.want("moved ../outside/b to b", call("move_file", "from", "../outside/b", "to", "b"))
		quiet(t, parent)
		result = s.begin(t.Context(), call("delete_file", "path", "../outside/c"))
		answer(t, parent, question(t, parent), protocol.Deny, "")
		<-result
		ended(t, parent)
	})
}

// A yes for the session to one file of the home, which the working directory is not in, is for that file, and to
// the home as a whole there is none. What an earlier version saved for all of a home does not hold either.
func TestNoYesIsForAHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted, func(o *toolenv.Options) {
			home := filepath.Join(filepath.Dir(o.Cwd), "outside")
			t.Setenv("HOME", home)
			o.Allowances = []protocol.Allowance{{Tool: "read_file", Action: protocol.ActionRead, Dir: home}, {Tool: "glob", Action: protocol.ActionRead, Dir: "/"}}
		})
		s.put(s.outside+"/notes", "notes")
		result := s.begin(t.Context(), call("read_file", "path", "~/notes"))
		answer(t, parent, question(t, parent), protocol.AllowSession, "")
		<-result
		ended(t, parent)
		s.want("notes", call("read_file", "path", "~/notes"))
		quiet(t, parent)
		for _, c := range []protocol.ToolCall{
			call("read_file", "path", "~/secret.txt"), call("list_directory", "path", "~"), call("list_directory", "path", "/"), call("glob", "path", "/", "pattern", "*"),
		} {
			result = s.begin(t.Context(), c)
			r := question(t, parent)
			if offered := slices.Contains(r.Decisions, protocol.AllowSession); offered != (c.Name == "read_file") {
				t.Errorf("%s %s: the answers are %v", c.Name, c.Input, r.Decisions)
			}
			answer(t, parent, r, protocol.Deny, "")
			<-result
			ended(t, parent)
		}
	})
}
