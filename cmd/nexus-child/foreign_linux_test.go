package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeagent builds the agent of another make that misbehaves on request, in a place of its own.
func fakeagent(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fakeagent")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../fixtures/fakeagent").CombinedOutput(); err != nil {
		t.Fatalf("build fakeagent: %v\n%s", err, out)
	}
	return path
}

// asProgram are the flags for that agent, at a protocol and with a fault.
func asProgram(path, protocol, fault, dir string) []string {
	return []string{
		"--session-dir", filepath.Join(dir, "sessions"), "--session-updates",
		"--program", `{"kind":"` + protocol + `","protocol":"` + protocol + `","command":["` + path + `","` + protocol + `","--fault","` + fault + `","--state","` + dir + `"]}`,
	}
}

// TestProgramKilledInMidText has a program of another make killed while it answers: nexus-child ends with
// it, and the next one goes on with the program's conversation and what was said.
func TestProgramKilledInMidText(t *testing.T) {
	path := fakeagent(t)
	for _, protocol := range []string{"acp", "claude", "codex", "pi"} {
		t.Run(protocol, func(t *testing.T) {
			home := t.TempDir()
			args := asProgram(path, protocol, "killed-in-turn", home)
			p := startChild(t, home, append(args, "--session", "s")...)
			p.send(`{"type":"prompt","id":"1","message":"hello"}`)
			p.want("event.delta", "hello")
			if code := p.wait(); code != 70 {
				t.Errorf("exit status %d, want 70", code)
			}
			p = startChild(t, home, append(args, "--continue", "s")...)
			p.send(`{"type":"get_state","id":"2"}`)
			if program := p.want("id", "2").Get("program"); program.Get("resumed").Str != "program" {
				t.Errorf("program: %s", program.Raw)
			}
			p.send(`{"type":"get_messages","id":"3"}`)
			last := p.want("id", "3").Get("messages.1")
			if last.Get("content").Str != "prompt 1: hello" || !last.Get("interrupted").Bool() {
				t.Errorf("kept: %s", last.Raw)
			}
			p.send(`{"type":"prompt","id":"4","message":"again"}`)
			p.want("event.delta", "prompt 2: ")
			p.wait()
		})
	}
}

// TestChildOfProgramKilled kills nexus-child in a turn: nothing is left of the program and of what it started.
func TestChildOfProgramKilled(t *testing.T) {
	path, home := fakeagent(t), t.TempDir()
	p := startChild(t, home, append(asProgram(path, "acp", "grandchild", home), "--session", "s")...)
	p.send(`{"type":"prompt","id":"1","message":"hello"}`)
	p.want("event.delta", " holds")
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var open []unix.PollFd
	for _, e := range entries {
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err != nil || exe != path {
			continue
		}
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			defer unix.Close(fd)
			open = append(open, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	if len(open) != 2 {
		t.Fatalf("%d processes, want the program and what it started", len(open))
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait()
	for i := range open {
		if n, err := unix.Poll(open[i:i+1], 20_000); n != 1 || err != nil {
			t.Errorf("a process is left: %v", err)
		}
	}
}

// TestProgramAborted aborts a turn in which the program says nothing, and goes on.
func TestProgramAborted(t *testing.T) {
	path := fakeagent(t)
	for _, protocol := range []string{"acp", "claude", "codex", "pi"} {
		t.Run(protocol, func(t *testing.T) {
			home := t.TempDir()
			p := startChild(t, home, append(asProgram(path, protocol, "silent", home), "--session", "s")...)
			for _, id := range []string{"1", "2"} {
				p.send(`{"type":"prompt","id":"` + id + `","message":"hello"}`)
				p.send(`{"type":"abort","id":"a` + id + `"}`)
				if end := p.want("type", "agent_end"); end.Get("stop_reason").Str != "aborted" || end.Get("turn_id").Str != id {
					t.Errorf("end: %s", end.Raw)
				}
			}
			p.stdin.Close()
			if code := p.wait(); code != 0 {
				t.Errorf("exit status %d", code)
			}
		})
	}
}

// TestProgramAsks passes a program's question to the parent, with the program's own options.
func TestProgramAsks(t *testing.T) {
	path := fakeagent(t)
	for protocol, option := range map[string][2]string{"acp": {"always", "never"}, "codex": {"acceptForSession", "cancel"}} {
		t.Run(protocol, func(t *testing.T) {
			home := t.TempDir()
			args := append(asProgram(path, protocol, "asks", home), "--session", "s", "--preset", "trusted", "--approvals", "ask")
			p := startChild(t, home, args...)
			for i, decision := range []string{"allow_session", "deny"} {
				p.send(`{"type":"prompt","id":"` + strconv.Itoa(i) + `","message":"hello"}`)
				asked := p.want("type", "permission_request")
				// Nothing confines the program, so that its command is as a tool of somebody else's.
				if asked.Get("action").Str != "external" || asked.Get("command").Str != "touch made" || len(asked.Get("options").Array()) != 4 {
					t.Errorf("asked: %s", asked.Raw)
				}
				p.send(`{"type":"permission_response","id":"r` + strconv.Itoa(i) + `","request_id":"` + asked.Get("request_id").Str +
					`","decision":"` + decision + `","option_id":"` + option[i] + `"}`)
				p.want("event.delta", " answer: "+option[i])
				p.want("type", "agent_end")
			}
			p.stdin.Close()
			p.wait()
			if _, err := os.Stat(filepath.Join(home, "made")); !os.IsNotExist(err) {
				t.Errorf("made: %v", err)
			}
		})
	}
}

// TestSystemPromptOfProgram tells what the program gets of a system prompt: the one that was asked for, and nothing of nexus's own.
func TestSystemPromptOfProgram(t *testing.T) {
	for _, system := range []string{"", "Be brief."} {
		home := t.TempDir()
		args := []string{"--no-session", "--program", `{"kind":"pipe","protocol":"pipe","command":["cat"]}`}
		want := "hello"
		if system != "" {
			args = append(args, "--system", system)
			want = "<instructions>\nBe brief.\n</instructions>\n\nhello"
		}
		p := startChild(t, home, args...)
		p.send(`{"type":"get_state","id":"g"}`)
		if state := p.want("id", "g"); state.Get("system_prompt").Str != system || state.Get("environment").Str != "" || len(state.Get("system_prompt_layers").Array()) > 0 {
			t.Errorf("state: %s", state.Raw)
		}
		p.send(`{"type":"prompt","id":"1","message":"hello"}`)
		if text := p.want("event.type", "text_delta").Get("event.delta").Str; text != want {
			t.Errorf("it got %q, want %q", text, want)
		}
		p.stdin.Close()
		p.wait()
	}
}
