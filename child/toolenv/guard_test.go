package toolenv_test

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/parent"
	"nexus.internal/child/tool"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// asked is a site whose parent is asked, and answers when the test says so.
func asked(t *testing.T, p protocol.Permissions, set ...func(*toolenv.Options)) (*site, *parent.Client) {
	parent := parent.New(parent.Options{Approvals: parent.Ask})
	return newSite(t, p, append(set, func(o *toolenv.Options) { o.Parent = parent })...), parent
}

// begin begins a call and returns where its result will be.
func (s *site) begin(ctx context.Context, c protocol.ToolCall) <-chan string {
	result := make(chan string, 1)
	go func() { result <- run(ctx, s.Env, c) }()
	return result
}

// question is the next event, which must be a question.
func question(t *testing.T, p *parent.Client) protocol.PermissionRequest {
	t.Helper()
	select {
	case e := <-p.Events():
		r, ok := e.(protocol.PermissionRequest)
		if !ok {
			t.Fatalf("got %#v, want a question", e)
		}
		return r
	case <-time.After(time.Minute):
		t.Fatal("nothing is asked")
		return protocol.PermissionRequest{}
	}
}

// ended is the outcome that the next event tells.
func ended(t *testing.T, p *parent.Client) string {
	t.Helper()
	select {
	case e := <-p.Events():
		end, ok := e.(protocol.PermissionEnd)
		if !ok {
			t.Fatalf("got %#v, want the end of a question", e)
		}
		return end.Outcome
	case <-time.After(time.Minute):
		t.Fatal("nothing ends")
		return ""
	}
}

func answer(t *testing.T, p *parent.Client, r protocol.PermissionRequest, d protocol.Decision, reason string) {
	t.Helper()
	if err := p.Answer(protocol.PermissionResponse{ID: "1", RequestID: r.RequestID, Decision: d, Reason: reason}); err != nil {
		t.Fatal(err)
	}
}

// quiet sees that nothing was asked.
func quiet(t *testing.T, p *parent.Client) {
	t.Helper()
	select {
	case e := <-p.Events():
		t.Fatalf("got %#v, want nothing", e)
	default:
	}
}

var trusted = protocol.Permissions{Preset: "trusted"}

func TestAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted)
		path := s.outside + "/new.txt"
		result := s.begin(t.Context(), call("write_file", "path", "../outside/new.txt", "content", "hello"))
		r := question(t, parent)
		want := protocol.PermissionRequest{
			RequestID: r.RequestID, TurnID: "t1", ToolID: "c1", ToolName: "write_file", Action: protocol.ActionWrite,
			Summary: "write ../outside/new.txt (5 bytes)", Reason: path + " is outside the working directory " + s.dir,
			Input: []byte(`{"content":"hello","path":"../outside/new.txt"}`), Paths: []string{path},
			Deadline:   time.Now().Add(5 * time.Minute).UTC().Format(time.RFC3339),
			Decisions:  []protocol.Decision{protocol.AllowOnce, protocol.AllowSession, protocol.Deny},
			ForSession: "write_file, copy_file, patches that only add files: all in " + s.outside + " and below",
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		time.Sleep(time.Hour / 30) // in the bubble's time: the tool's own has not begun
		answer(t, parent, r, protocol.AllowOnce, "")
		if got := <-result; got != "wrote 5 bytes to ../outside/new.txt (a new file)" {
			t.Errorf("got %q", got)
		}
		if got := ended(t, parent); got != "allowed" {
			t.Errorf("got %s", got)
		}

		// An edit reads the file, too.
		result = s.begin(t.Context(), call("edit_file", "path", path, "old_text", "ello", "new_text", "allo"))
		answer(t, parent, question(t, parent), protocol.AllowOnce, "")
		if got := <-result; got != "edited "+path+": replaced 1 place, in line 1" {
			t.Errorf("got %q", got)
		}
		ended(t, parent)

		// Once is once.
		result = s.begin(t.Context(), call("write_file", "path", path, "content", "again"))
		answer(t, parent, question(t, parent), protocol.Deny, "not there")
		if got := <-result; got != "write_file: it was not allowed: not there" {
			t.Errorf("got %q", got)
		}
		if got := ended(t, parent); got != "denied" {
			t.Errorf("got %s", got)
		}
		if content, err := os.ReadFile(path); string(content) != "hallo" {
			t.Errorf("the file holds %q, %v", content, err)
		}
	})
}

// saves is a [toolenv.Journal] of allowances.
type saves func(a protocol.Allowance) error

func (s saves) Commit(records ...transcript.Record) error {
	return s(records[0].(transcript.Allowance).Allowance)
}

// Nobody is asked about a command that would fail for where it is to begin, whatever it is named by.
func TestCommandOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted)
		if err := os.Symlink(s.outside, s.dir+"/away"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"shell", "job_start"} {
			for cwd, want := range map[string]string{
				"..":      "cwd .. is outside the working directory WORK: a command begins there or below",
				s.outside: "cwd OUTSIDE is outside the working directory WORK: a command begins there or below",
				"away":    "away leads out of what this agent may touch",
			} {
				s.want(name+": "+want, call(name, "command", "make", "cwd", cwd))
			}
		}
		quiet(t, parent)
	})
}

// What was allowed for the session is not asked again, nor after a restart; what
// is beside it is.
func TestForTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved []protocol.Allowance
		s, parent := asked(t, trusted, func(o *toolenv.Options) {
			o.Journal = saves(func(a protocol.Allowance) error { saved = append(saved, a); return nil })
		})
		result := s.begin(t.Context(), call("write_file", "path", s.outside+"/a", "content", "1"))
		answer(t, parent, question(t, parent), protocol.AllowSession, "")
		if got := <-result; !strings.HasPrefix(got, "wrote") {
			t.Errorf("got %q", got)
		}
		ended(t, parent)
		want := []protocol.Allowance{{Tool: "write_file", Action: protocol.ActionWrite, Dir: s.outside}}
		if diff := cmp.Diff(want, saved); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		s.o.Allowances = saved
		for _, w := range []*toolenv.Env{s.Env, s.open(s.o)} {
			if got := run(t.Context(), w, call("write_file", "path", s.outside+"/b", "content", "2")); !strings.HasPrefix(got, "wrote") {
				t.Errorf("got %q", got)
			}
			quiet(t, parent)
			reading := make(chan string, 1)
			go func() { reading <- run(t.Context(), w, call("read_file", "path", s.outside+"/b")) }()
			answer(t, parent, question(t, parent), protocol.Deny, "")
			if got := <-reading; !strings.Contains(got, "it was not allowed") {
				t.Errorf("got %q", got)
			}
			ended(t, parent)
		}
	})
}

func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted)
		began := time.Now()
		result := s.begin(t.Context(), call("read_file", "path", s.outside+"/secret.txt"))
		r := question(t, parent)
		if got := <-result; got != "read_file: it was not allowed: nobody answered within 5m0s" {
			t.Errorf("got %q", got)
		}
		if waited := time.Since(began); waited != 5*time.Minute {
			t.Errorf("waited %v", waited)
		}
		if got := ended(t, parent); got != "expired" {
			t.Errorf("got %s", got)
		}
		if err := parent.Answer(protocol.PermissionResponse{RequestID: r.RequestID, Decision: protocol.AllowOnce}); err == nil {
			t.Error("an answer after the deadline is taken")
		}
	})
}

// An abort does not wait for an answer, and takes the question back.
func TestAbortedQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted)
		ctx, abort := context.WithCancel(t.Context())
		result := s.begin(ctx, call("read_file", "path", s.outside+"/secret.txt"))
		question(t, parent)
		began := time.Now()
		abort()
		if got := <-result; got != "read_file was not run: the turn was aborted" || time.Since(began) > 0 {
			t.Errorf("got %q after %v", got, time.Since(began))
		}
		if got := ended(t, parent); got != "cancelled" {
			t.Errorf("got %s", got)
		}
	})
}

// Reads side by side ask each for itself, and an answer for the session that covers
// the other settles it; a write after them asks when they are done.
func TestTwoQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted)
		calls := []protocol.ToolCall{
			call("read_file", "path", s.outside+"/secret.txt"), call("read_file", "path", s.outside+"/none"), call("list_directory", "path", s.outside),
			call("write_file", "path", s.outside+"/a", "content", "1"),
		}
		outcomes := make(chan []tool.Outcome, 1)
		go func() { outcomes <- s.Tools().Run(t.Context(), "", calls, nil) }()
		asked := map[string]protocol.PermissionRequest{}
		for range 3 {
			r := question(t, parent)
			asked[path.Base(r.Paths[0])] = r
		}
		answer(t, parent, asked["secret.txt"], protocol.AllowSession, "")
		var ends []string
		for range 2 {
			ends = append(ends, ended(t, parent))
		}
		if got := fmt.Sprint(ends); got != "[allowed cancelled]" && got != "[cancelled allowed]" {
			t.Errorf("the two reads ended %s", got)
		}
		quiet(t, parent)
		answer(t, parent, asked["outside"], protocol.Deny, "")
		ended(t, parent)
		answer(t, parent, question(t, parent), protocol.AllowOnce, "")
		var texts []string
		for _, o := range <-outcomes {
			texts = append(texts, strings.Fields(o.Text)[0])
		}
		if got := fmt.Sprint(texts); got != "[secret read_file: list_directory: wrote]" {
			t.Errorf("got %s", got)
		}
	})
}

// ~ is the user's home, for tools and for those who are asked, and never a directory of that name.
func TestTilde(t *testing.T) {
	s := newSite(t, trusted)
	t.Setenv("HOME", filepath.Dir(s.dir))
	in := "~/" + filepath.Base(s.dir)
	s.want("wrote 4 bytes to ~/work/a.txt (a new file)", call("write_file", "path", in+"/a.txt", "content", "text"))
	s.want("text", call("read_file", "path", in+"/a.txt"))
	s.want("a.txt:1:text\n", call("search_text", "pattern", "t", "path", in))
	s.want("text\n[exit status 0]", call("shell", "command", "cat a.txt", "cwd", in))
	outside := "~/" + filepath.Base(s.outside) + "/secret.txt"
	s.want("read_file: OUTSIDE/secret.txt is outside the working directory WORK; that needs an approval, and there is nobody to give one", call("read_file", "path", outside))
	s.want("write_file: "+filepath.Dir(s.dir)+"/b is outside the working directory WORK; that needs an approval, and there is nobody to give one", call("write_file", "path", "~/b", "content", ""))
	s.want("write_file: write ~you/b: ~ stands for a home only alone or before a slash; for a file of that name, write ./~you/b", call("write_file", "path", "~you/b", "content", ""))
	s.want("wrote 5 bytes to ./~/b (a new file)", call("write_file", "path", "./~/b", "content", "meant"))
	t.Setenv("HOME", "")
	s.want("list_directory: list ~: the home that ~ stands for is not known here; for a directory of that name, write ./~", call("list_directory", "path", "~"))
	s.want("shell: cwd ~: the home that ~ stands for is not known here; for a directory of that name, write ./~", call("shell", "command", "pwd", "cwd", "~"))
}

// Permissions that change hold at once, also for a call that waits, in both
// directions.
func TestPermissionsThatChangeMeanwhile(t *testing.T) {
	for preset, want := range map[string]string{
		"yolo":      "secret",
		"sandboxed": "read_file: OUTSIDE/secret.txt is outside the working directory WORK",
	} {
		t.Run(preset, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, parent := asked(t, trusted)
				result := s.begin(t.Context(), call("read_file", "path", s.outside+"/secret.txt"))
				question(t, parent)
				if err := s.SetPermissions(protocol.Permissions{Preset: preset}, protocol.WithinCeiling); err != nil {
					t.Fatal(err)
				}
				got := strings.NewReplacer(s.dir, "WORK", s.outside, "OUTSIDE").Replace(<-result)
				if got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				if got := ended(t, parent); got != "cancelled" {
					t.Errorf("got %s", got)
				}
			})
		})
	}
}

// A yes does not lift what was forbidden between it and the call.
func TestForbiddenAfterTheYes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *site
		s, parent := asked(t, trusted, func(o *toolenv.Options) {
			o.Journal = saves(func(protocol.Allowance) error {
				return s.SetPermissions(protocol.Permissions{Preset: "sandboxed"}, protocol.WithinCeiling)
			})
			o.Tools = []tool.Tool{external("docs")}
		})
		result := s.begin(t.Context(), call("docs"))
		answer(t, parent, question(t, parent), protocol.AllowSession, "")
		if got := <-result; !strings.Contains(got, "the preset sandboxed does not allow docs") {
			t.Errorf("got %q", got)
		}
	})
}

// A yes is for the place that was shown: a link that is changed afterwards leads
// nowhere.
func TestTheYesIsForThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted)
		link := s.dir + "/link"
		if err := os.Symlink(s.outside+"/harmless", link); err != nil {
			t.Fatal(err)
		}
		s.put(s.outside+"/harmless", "harmless")
		for _, swapped := range []bool{false, true} {
			result := s.begin(t.Context(), call("read_file", "path", "link"))
			r := question(t, parent)
			if r.Paths[0] != s.outside+"/harmless" {
				t.Errorf("asked for %v", r.Paths)
			}
			want := "harmless"
			if swapped {
				want = "read_file: link leads out of what this agent may touch"
				if err := os.Remove(link); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(s.outside+"/secret.txt", link); err != nil {
					t.Fatal(err)
				}
			}
			answer(t, parent, r, protocol.AllowOnce, "")
			if got := <-result; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			ended(t, parent)
		}
	})
}

// Where nobody is asked, the mode decides.
func TestModesOfApproval(t *testing.T) {
	for _, tt := range []struct {
		name   string
		parent *parent.Client
		want   string
	}{
		{"no parent", nil, "docs: the preset trusted asks before a tool of somebody else's is used; that needs an approval, and there is nobody to give one"},
		{"deny", parent.New(parent.Options{}), "docs: the preset trusted asks before a tool of somebody else's is used; that needs an approval, and there is nobody to give one"},
		{"allow", parent.New(parent.Options{Approvals: parent.Allow}), "done"},
	} {
		s := newSite(t, trusted, func(o *toolenv.Options) {
			o.Parent, o.Tools = tt.parent, []tool.Tool{external("docs")}
		})
		if got := run(t.Context(), s.Env, call("docs")); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// What runs is shown whole, be it the command or what a shell reads: a program between the beginning and the end of a long input was visible nowhere. What
// nobody can be shown is refused.
func TestWhatRunsIsShownWhole(t *testing.T) {
	script := strings.Repeat("echo harmless\n", 700) + "rm -rf ~\n" + strings.Repeat("echo harmless\n", 700)
	for _, c := range []protocol.ToolCall{
		call("shell", "command", "bash", "stdin", script), call("job_start", "command", "bash", "stdin", script), call("shell", "command", script),
		call("job_input", "job", "job1", "text", script),
	} {
		synctest.Test(t, func(t *testing.T) {
			s, parent := asked(t, trusted)
			ctx, abort := context.WithCancel(t.Context())
			result := s.begin(ctx, c)
			if r := question(t, parent); string(r.Input) != string(c.Input) {
				t.Errorf("%s: %d bytes of %d are shown: %.100s", c.Name, len(r.Input), len(c.Input), r.Input)
			}
			abort()
			<-result
		})
	}
	s, parent := asked(t, trusted)
	for _, c := range []protocol.ToolCall{
		call("shell", "command", "bash", "stdin", strings.Repeat("x", 128<<10)), call("shell", "command", strings.Repeat("x", 128<<10)), call("job_input", "job", "job1", "text", strings.Repeat("x", 128<<10)),
	} {
		if got := run(t.Context(), s.Env, c); !strings.Contains(got, "nobody can be shown all that would run: it has 131") {
			t.Errorf("%s: got %q", c.Name, got)
		}
		quiet(t, parent)
	}
}

// What a program of another make asks is shown whole where it may run a command, whatever the action.
func TestWhatAProgramRunsIsShownWhole(t *testing.T) {
	for _, runs := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, parent := asked(t, trusted)
			ctx, abort := context.WithCancel(t.Context())
			c := toolenv.ProgramCall{
				TurnID: "t1", ID: "c1", Name: "execute", Input: call("", "cmd", strings.Repeat("x", 24<<10)).Input, Action: protocol.ActionExternal, Runs: runs,
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = toolenv.ForProgram(s.Env, protocol.AgentProgram{}).Ask(ctx, c)
			}()
			if r := question(t, parent); (string(r.Input) == string(c.Input)) != runs {
				t.Errorf("%v: %d bytes are shown", runs, len(r.Input))
			}
			abort()
			<-done
		})
	}
	s, parent := asked(t, trusted)
	_, err := toolenv.ForProgram(s.Env, protocol.AgentProgram{}).Ask(t.Context(), toolenv.ProgramCall{
		Name: "execute", Input: call("", "cmd", strings.Repeat("x", 128<<10)).Input, Action: protocol.ActionExternal, Runs: true,
	})
	if err == nil || !strings.Contains(err.Error(), "nobody can be shown all that would run") {
		t.Errorf("got %v", err)
	}
	quiet(t, parent)
}

// A long input is shown by its beginning and its end; a command is not allowed for the
// session where nobody knows what it runs.
func TestWhatIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted)
		ctx, abort := context.WithCancel(t.Context())
		result := s.begin(ctx, call("write_file", "path", s.outside+"/a", "content", strings.Repeat("ä", 50_000)+"the end"))
		r := question(t, parent)
		if got := string(r.Input); len(got) > 20<<10 || !strings.HasPrefix(got, `{"truncated":true,"size":1000`) || !strings.Contains(got, "the end") {
			t.Errorf("%d bytes: %.100s", len(got), got)
		}
		abort()
		<-result
		ended(t, parent)

		ctx, abort = context.WithCancel(t.Context())
		result = s.begin(ctx, call("shell", "command", "$x --version"))
		r = question(t, parent)
		want := []protocol.Decision{protocol.AllowOnce, protocol.Deny}
		if diff := cmp.Diff(want, r.Decisions); diff != "" || r.Command != "$x --version" || r.Paths[0] != s.dir {
			t.Errorf("got %+v", r)
		}
		abort()
		<-result
	})
}

// A patch of several files is one question, which shows all paths and the patch. It is held to the rules of the tools
// whose work it does, and has none of what was allowed for these.
func TestPatchIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted, func(o *toolenv.Options) {
			o.Allowances = []protocol.Allowance{{Tool: "delete_file", Action: protocol.ActionWrite, Dir: filepath.Join(filepath.Dir(o.Cwd), "outside")}}
		})
		c := call("apply_patch", "patch", "*** Begin Patch\n*** Add File: in\n+x\n*** Add File: ../outside/new\n+x\n*** Delete File: ../outside/secret.txt\n*** End Patch")
		result := s.begin(t.Context(), c)
		r := question(t, parent)
		want := []string{s.dir + "/in", s.outside + "/new", s.outside + "/secret.txt"}
		if r.Summary != "patch: add in, add ../outside/new, delete ../outside/secret.txt" || !slices.Equal(r.Paths, want) || string(r.Input) != string(c.Input) {
			t.Errorf("got %+v", r)
		}
		answer(t, parent, r, protocol.AllowOnce, "")
		if got := <-result; got != "added in (1 line)\nadded ../outside/new (1 line)\ndeleted ../outside/secret.txt (1 line)\n" {
			t.Errorf("got %q", got)
		}
		ended(t, parent)
	})

	// Where one of these tools is disabled, a patch that does not do its work goes through.
	const begin, end = "*** Begin Patch\n", "*** End Patch"
	patches := map[string]string{
		"edit_file": "*** Update File: a\n-old\n+new\n", "delete_file": "*** Delete File: a\n", "move_file": "*** Update File: a\n*** Move to: b\n",
	}
	for disabled := range patches {
		for _, rules := range []protocol.Permissions{
			{Preset: "trusted", DisabledTools: []string{disabled}},
			{Preset: "trusted", Tools: map[string]protocol.ToolRule{disabled: {Mode: "ask"}}}, // and there is nobody to answer
		} {
			s := newSite(t, rules)
			for does, patch := range patches {
				s.put(s.dir+"/a", "old\n")
				got := run(t.Context(), s.Env, call("apply_patch", "patch", begin+patch+end))
				why := "apply_patch: it would do what " + disabled + " does, and " + disabled + " is disabled for this agent"
				if rules.Tools != nil {
					why = "apply_patch: the rules of this agent ask before apply_patch is used; that needs an approval, and there is nobody to give one"
				}
				if refused := got == why; refused != (does == disabled) {
					t.Errorf("%s without %s: %s", does, disabled, got)
				}
				_ = os.Remove(s.dir + "/b") // it is there only if a was moved
			}
		}
	}
	s := newSite(t, protocol.Permissions{Preset: "trusted", Tools: map[string]protocol.ToolRule{"delete_file": {BlockedPaths: []string{"/tmp/x"}, AllowedPaths: []string{"/nowhere"}}}})
	s.put(s.dir+"/a", "old\n")
	s.want("apply_patch: WORK/a is outside of what apply_patch may touch: /nowhere", call("apply_patch", "patch", begin+patches["delete_file"]+end))
	s.want("updated a (+1 -1)\n", call("apply_patch", "patch", begin+patches["edit_file"]+end))
}

// A program of another make reads the file that was allowed, not what it makes of its name while the question waits.
func TestAProgramsFileStaysTheOneAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, parent := asked(t, trusted)
		path, harmless := s.outside+"/link", s.outside+"/harmless.txt"
		if err := os.WriteFile(harmless, []byte("harmless"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(harmless, path); err != nil {
			t.Fatal(err)
		}
		program := toolenv.ForProgram(s.Env, protocol.AgentProgram{})
		read := func(meanwhile func()) (string, error) {
			var text string
			var err error
			done := make(chan struct{})
			go func() { defer close(done); text, err = program.ReadFile(t.Context(), "t1", path) }()
			r := question(t, parent)
			meanwhile()
			answer(t, parent, r, protocol.AllowOnce, "")
			<-done
			ended(t, parent)
			return text, err
		}
		if got, err := read(func() {}); got != "harmless" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		got, err := read(func() {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(s.outside+"/secret.txt", path); err != nil {
				t.Fatal(err)
			}
		})
		if err == nil {
			t.Errorf("it read %q", got)
		}
	})
}
