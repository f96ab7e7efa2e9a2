package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// Background jobs end with their agent, however that ends, with all that they have started:
// each process holds a pipe open, whose end tells that all are gone.
func TestJobsEndWithTheAgent(t *testing.T) {
	for name, end := range map[string]func(p *process) error{
		"kill -9":       func(p *process) error { return p.cmd.Process.Kill() },
		"SIGTERM":       func(p *process) error { return p.cmd.Process.Signal(syscall.SIGTERM) },
		"shutdown":      func(p *process) error { p.send(`{"type":"shutdown"}`); return nil },
		"end of stdin":  func(p *process) error { return p.stdin.Close() },
		"a new session": func(p *process) error { p.send(`{"type":"new_session","id":"n"}`); return nil },
		"other bounds": func(p *process) error {
			p.send(`{"type":"set_permissions","id":"n","permissions":{"preset":"sandboxed","blocked_paths":["/nowhere"]}}`)
			return nil
		},
		"an abort after": nil, // does not end it: the end of stdin does
	} {
		for _, preset := range []string{"sandboxed", "yolo"} {
			t.Run(name+" "+preset, func(t *testing.T) {
				home, err := filepath.EvalSymlinks(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				fifo, scenario := filepath.Join(home, "work", "fifo"), filepath.Join(home, "scenario.json")
				if err := os.Mkdir(filepath.Dir(fifo), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := syscall.Mkfifo(fifo, 0o600); err != nil {
					t.Fatal(err)
				}
				held, err := os.OpenFile(fifo, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				reader, err := os.Open(fifo)
				if err != nil {
					t.Fatal(err)
				}
				defer reader.Close()
				play := `{"turns":[{"match":"start","steps":[
					{"tool":{"name":"job_start","input":{"name":"j","command":"exec 9>fifo; (setsid sh -c 'trap \"\" TERM HUP; sleep 1000; sleep 1000' &); echo up; sleep 1000"}}},
					{"tool":{"name":"job_output","input":{"job":"j","wait_s":60}}},{"text":"up"}]},
					{"match":"hang","steps":[{"hang":"until_aborted"}]},
					{"match":"look","steps":[{"tool":{"name":"job_list","input":{}}},{"text":"seen"}]}]}`
				if err := os.WriteFile(scenario, []byte(play), 0o600); err != nil {
					t.Fatal(err)
				}
				p := startChild(t, home, "--scenario", scenario, "--no-session", "--preset", preset, "--cwd", filepath.Dir(fifo))
				p.send(`{"type":"prompt","id":"1","message":"start"}`)
				p.want("event.tool_id", "call_2")
				if got := p.want("type", "agent_end"); got.Get("stop_reason").String() != "completed" {
					t.Fatal(got.Raw)
				}
				p.send(`{"type":"list_jobs","id":"l"}`)
				if job := p.want("id", "l").Get("jobs.0"); job.Get("job_id").Str != "j" || !job.Get("running").Bool() || job.Get("output_bytes").Int() != 3 ||
					!strings.HasPrefix(job.Get("command").Str, "exec 9>fifo") || job.Get("ended_at").Exists() {
					t.Errorf("listed: %s", job.Raw)
				}
				if end == nil {
					p.send(`{"type":"prompt","id":"2","message":"hang"}`)
					p.send(`{"type":"abort","id":"a"}`)
					p.want("id", "a")
					p.send(`{"type":"prompt","id":"3","message":"look"}`)
					if got := p.want("event.type", "toolcall_result").Get("event.result").String(); !strings.HasPrefix(got, "j: running for ") {
						t.Errorf("after an abort: %q", got)
					}
					end = func(p *process) error { return p.stdin.Close() }
				}
				held.Close()
				if err := end(p); err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(reader); len(got) > 0 || err != nil { // returns when nobody can write any more
					t.Errorf("%q, %v", got, err)
				}
				p.stdin.Close()
				p.wait()
			})
		}
	}
}

// The end of a job is told with the next prompt, once.
func TestEndOfAJobIsTold(t *testing.T) {
	home := t.TempDir()
	scenario := filepath.Join(home, "scenario.json")
	play := `{"turns":[{"match":"start","steps":[{"tool":{"name":"job_start","input":{"name":"j","command":"exit 4"}}},{"text":"up"}]}],"after":"offline"}`
	if err := os.WriteFile(scenario, []byte(play), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startChild(t, home, "--scenario", scenario, "--no-session", "--preset", "yolo")
	p.send(`{"type":"prompt","id":"start","message":"start"}`)
	told := strings.Count(p.want("event.type", "toolcall_result").Get("event.result").String(), "[job j ended: exit status 4]")
	p.want("type", "agent_end")
	for i, after := 0, 0; after < 2; i++ {
		if told > 0 {
			after++
		}
		p.send(fmt.Sprintf(`{"type":"prompt","id":"%d","message":"what do you say?"}`, i))
		p.want("type", "agent_end")
		p.send(fmt.Sprintf(`{"type":"get_messages","id":"m%d"}`, i))
		told = strings.Count(p.want("id", fmt.Sprint("m", i)).Get(`messages.#(role!="assistant")#.content`).Raw, `[job j ended: exit status 4]`)
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	p.stdin.Close()
	p.wait()
}

// A summary ends with the jobs that run by then, whatever an earlier one said.
func TestSummariesNameTheJobsThatRun(t *testing.T) {
	home := t.TempDir()
	scenario := filepath.Join(home, "scenario.json")
	play := `{"turns":[
		{"match":"start","steps":[{"tool":{"name":"job_start","input":{"name":"web","command":"exec sleep 1000"}}},{"tool":{"name":"job_start","input":{"name":"db","command":"exec sleep 2000"}}},{"text":"up"}]},
		{"match":"stop","steps":[{"tool":{"name":"job_stop","input":{"job":"web"}}},{"text":"down"}]}
	],"after":"offline"}`
	if err := os.WriteFile(scenario, []byte(play), 0o600); err != nil {
		t.Fatal(err)
	}
	time := regexp.MustCompile(`running for [0-9ms]+,`)
	p := startChild(t, home, "--scenario", scenario, "--no-session", "--preset", "yolo")
	for _, s := range []struct{ id, message, want string }{
		{"1", "start", "web: running, 0 bytes of output: exec sleep 1000\ndb: running, 0 bytes of output: exec sleep 2000\n"},
		{"2", "stop", "db: running, 0 bytes of output: exec sleep 2000\n"},
	} {
		for _, message := range []string{s.message, "echo " + strings.Repeat("long words ", 2000)} {
			p.send(`{"type":"prompt","id":"` + s.id + `","message":"` + message + `"}`)
			p.want("type", "agent_end")
		}
		p.send(`{"type":"compact","id":"c` + s.id + `","force":true}`)
		summary := time.ReplaceAllString(p.want("id", "c"+s.id).Get("summary").String(), "running,")
		if !strings.HasSuffix(summary, "\n\nBackground jobs that ran then (see job_list and job_output):\n"+s.want) || strings.Count(summary, "db: running") != 1 {
			t.Errorf("after %s the summary is %q", s.message, summary)
		}
	}
	p.stdin.Close()
	p.wait()
}
