package toolenv_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nexus.internal/child/parent"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

// What holds for shell holds for jobs, as for what they are given: else they would be a way
// around it.
func TestJobsAreHeldToTheRulesOfShell(t *testing.T) {
	type rules = map[string]protocol.ToolRule
	const refused = "job_start: the preset trusted asks before programs are run; that needs an approval, and there is nobody to give one"
	for _, tt := range []struct {
		name    string
		asked   protocol.Permissions
		command string
		want    string
	}{
		{"asked about", protocol.Permissions{}, "touch a; sleep 1000", refused},
		{"only looking", protocol.Permissions{}, "sleep 1000", "[job job1 is running: job_output shows its output, job_stop ends it]"},
		{"disabled", protocol.Permissions{DisabledTools: []string{"shell"}}, "sleep 1000", `there is no tool "job_start"`},
		{"denied", protocol.Permissions{Tools: rules{"shell": {Mode: "deny"}, "job_start": {Mode: "allow"}}}, "sleep 1000", `there is no tool "job_start"`},
		{"itself disabled", protocol.Permissions{DisabledTools: []string{"job_start"}}, "sleep 1000", `there is no tool "job_start"`},
		{"allowed", protocol.Permissions{Tools: rules{"shell": {Mode: "allow"}}}, "touch a; sleep 1000", "[job job1 is running: job_output shows its output, job_stop ends it]"},
		{"itself allowed", protocol.Permissions{Tools: rules{"job_start": {Mode: "allow"}}}, "touch a; sleep 1000", "[job job1 is running: job_output shows its output, job_stop ends it]"},
		{"asked by a rule", protocol.Permissions{Preset: "yolo", Tools: rules{"shell": {Mode: "ask"}}}, "sleep 1000", "job_start: the rules of this agent ask before job_start is used; that needs an approval, and there is nobody to give one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, tt.asked, func(o *toolenv.Options) { o.Parent = parent.New(parent.Options{Approvals: parent.Deny}) })
			s.want(tt.want, call("job_start", "command", tt.command))
		})
	}
}

// A job is held by the kernel to what its agent may touch, as a command of shell is.
func TestJobsAreConfined(t *testing.T) {
	for _, tt := range []struct {
		preset, command, want string
		approvals             parent.Approvals
	}{
		{"trusted", "echo x > OUTSIDE/x", "OUTSIDE/x: ", parent.Allow},
		{"trusted", "tail -n 1 OUTSIDE/secret.txt", "ermission denied", parent.Deny}, // unasked, as it only looks
		{"sandboxed", "cat OUTSIDE/secret.txt", "ermission denied", parent.Deny},
		{"sandboxed", "echo x > OUTSIDE/x", "OUTSIDE/x: ", parent.Deny},
		{"sandboxed", "echo x > OUTSIDE/x", "\n[likely the walls of this agent: ", parent.Deny},
		{"sandboxed", "kill -9 $PPID", "not permitted", parent.Deny},
		{"sandboxed", "echo x > /dev/tty", "/dev/tty: ", parent.Deny},
	} {
		t.Run(tt.preset+" "+tt.command, func(t *testing.T) {
			s := newSite(t, protocol.Permissions{Preset: tt.preset}, func(o *toolenv.Options) { o.Parent = parent.New(parent.Options{Approvals: tt.approvals}) })
			run(t.Context(), s.Env, call("job_start", "command", strings.ReplaceAll(tt.command, "OUTSIDE", s.outside)))
			got := run(t.Context(), s.Env, call("job_output", "job", "job1", "wait_s", 60, "until", "end"))
			if got = strings.ReplaceAll(got, s.outside, "OUTSIDE"); !strings.Contains(got, tt.want) || !strings.Contains(got, "[job job1 ended: exit status 1") {
				t.Errorf("got %q, want %q in it", got, tt.want)
			}
		})
	}
}

// What a job is given may be commands: it is asked about, whatever its text looks like.
func TestInputOfAJobIsAskedAbout(t *testing.T) {
	s, from := asked(t, protocol.Permissions{})
	result := s.begin(t.Context(), call("job_start", "command", "bash", "name", "sh"))
	q := question(t, from)
	if q.ToolName != "job_start" || q.Command != "bash" || q.Action != protocol.ActionExecute || q.Summary != "start job sh: bash" {
		t.Errorf("asked %+v", q)
	}
	answer(t, from, q, protocol.AllowOnce, "")
	if got := <-result; !strings.HasPrefix(got, "[job sh is running") {
		t.Fatal(got)
	}
	ended(t, from)
	result = s.begin(t.Context(), call("job_input", "job", "sh", "text", "ls"))
	q = question(t, from)
	if q.Summary != `give job sh (bash) the input "ls"` || len(q.Decisions) != 2 {
		t.Errorf("asked %+v", q)
	}
	answer(t, from, q, protocol.Deny, "")
	if got := <-result; !strings.HasPrefix(got, "job_input: it was not allowed") {
		t.Error(got)
	}
}

// A change of permissions ends the jobs that could do more than they could be started to do
// then, and no other ones; a new session ends them all.
func TestJobsAndChanges(t *testing.T) {
	const stopped = "[job job1 ended: stopped, because the permissions or the working directory have changed]"
	for _, tt := range []struct {
		name   string
		change func(s *site) error
		want   string
	}{
		{"narrower", func(s *site) error {
			return s.SetPermissions(protocol.Permissions{Preset: "sandboxed"}, protocol.WithinCeiling)
		}, stopped},
		{"shell denied", func(s *site) error {
			if err := s.SetPermissions(protocol.Permissions{Preset: "trusted", DisabledTools: []string{"shell"}}, protocol.WithinCeiling); err != nil {
				return err
			}
			return s.SetPermissions(trusted, protocol.WithinCeiling)
		}, stopped},
		{"something blocked", func(s *site) error {
			return s.SetPermissions(protocol.Permissions{Preset: "trusted", BlockedPaths: []string{s.dir + "/x"}}, protocol.WithinCeiling)
		}, stopped},
		{"another directory", func(s *site) error { return s.SetCwd(s.outside, protocol.WithinCeiling) }, stopped},
		{"another tool disabled", func(s *site) error {
			return s.SetPermissions(protocol.Permissions{Preset: "trusted", DisabledTools: []string{"web_fetch"}}, protocol.WithinCeiling)
		}, "done\n[job job1 running for T]"},
		{"wider", func(s *site) error {
			return s.SetPermissions(protocol.Permissions{Preset: "yolo"}, protocol.WithinCeiling)
		}, "done\n[job job1 running for T]"},
		{"a new session", func(s *site) error { s.Forget(); return nil }, `job_output: there is no job "job1", and no other`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, protocol.Permissions{Preset: "trusted"}, func(o *toolenv.Options) { o.Parent = parent.New(parent.Options{Approvals: parent.Allow}) })
			run(t.Context(), s.Env, call("job_start", "command", "read go; echo done; exec cat"))
			if err := tt.change(s); err != nil {
				t.Fatal(err)
			}
			run(t.Context(), s.Env, call("job_input", "job", "job1", "text", "go\n"))
			s.want(tt.want, call("job_output", "job", "job1", "wait_s", 60))
		})
	}
}

// A change of permissions ends a command of shell that runs and could do more than one could
// be started to do then, and no other one: an owner narrows an agent while its command runs.
func TestCommandsAndChanges(t *testing.T) {
	const killed = "[killed: the permissions have changed, and it could do more]"
	set := func(p protocol.Permissions) func(s *site) error {
		return func(s *site) error { return s.SetPermissions(p, protocol.WithinCeiling) }
	}
	for _, tt := range []struct {
		name    string
		command string // runs between its beginning and its end; "" for cat
		change  func(s *site) error
		want    string
	}{
		{"narrower", "python3 --version", set(protocol.Permissions{Preset: "sandboxed"}), killed},
		{"fewer hosts", "python3 --version", set(protocol.Permissions{Preset: "trusted", Network: []string{}}), killed},
		{"shell disabled", "python3 --version", set(protocol.Permissions{Preset: "trusted", DisabledTools: []string{"shell"}}), killed},
		{"something blocked", "", func(s *site) error {
			return s.SetPermissions(protocol.Permissions{Preset: "trusted", BlockedPaths: []string{s.dir + "/x"}}, protocol.WithinCeiling)
		}, killed},
		{"narrower, of one that reads", "", set(protocol.Permissions{Preset: "sandboxed"}), "go\n[exit status 0]"},
		{"another directory", "", func(s *site) error { return s.SetCwd(s.outside, protocol.WithinCeiling) }, "go\n[exit status 0]"},
		{"another tool disabled", "", set(protocol.Permissions{Preset: "trusted", DisabledTools: []string{"web_fetch"}}), "go\n[exit status 0]"},
		{"wider", "", set(protocol.Permissions{Preset: "yolo"}), "go\n[exit status 0]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, trusted, func(o *toolenv.Options) { o.Parent = parent.New(parent.Options{Approvals: parent.Allow}) })
			gate := filepath.Join(s.dir, "gate")
			if err := syscall.Mkfifo(gate, 0o600); err != nil {
				t.Fatal(err)
			}
			line := "cat gate"
			if tt.command != "" {
				line = tt.command + " > " + s.dir + "/out; cat gate"
			}
			result := s.begin(t.Context(), call("shell", "command", line))
			f, err := os.OpenFile(gate, os.O_WRONLY, 0) // once cat has opened it, too
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.change(s); err != nil {
				t.Fatal(err)
			}
			if tt.want != killed {
				if _, err := f.WriteString("go\n"); err != nil {
					t.Fatal(err)
				}
				f.Close()
			}
			if got := <-result; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			f.Close()
		})
	}
}
