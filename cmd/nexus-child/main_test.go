package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
)

// The tests run the real program: the test binary itself, told to be it.
func TestMain(m *testing.M) {
	if os.Getenv("NEXUS_TEST_BE_CHILD") == "1" {
		main()
	}
	os.Exit(m.Run())
}

// process is one nexus-child.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	lines  *bufio.Reader
	stderr bytes.Buffer
}

// command prepares a child with a home of its own and nothing else in its
// environment but env. It is killed if it outlives the test.
func command(t *testing.T, home string, env []string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	p := &process{t: t, cmd: exec.CommandContext(ctx, os.Args[0], args...)}
	p.cmd.Dir = t.TempDir()
	p.cmd.Env = append([]string{"NEXUS_TEST_BE_CHILD=1", "NEXUS_HOME=" + home, "GORACE=atexit_sleep_ms=0"}, env...)
	p.cmd.Stderr = &p.stderr
	return p
}

func startChild(t *testing.T, home string, args ...string) *process {
	t.Helper()
	p := command(t, home, nil, args...)
	p.start()
	return p
}

// start starts it with pipes and waits until it is ready.
func (p *process) start() { p.startUntil("ready") }

// startUntil starts it with pipes and waits until it says that.
func (p *process) startUntil(event string) {
	t := p.t
	t.Helper()
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewReader(p.stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.want("type", event)
}

func (p *process) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// want reads frames up to one whose member at path has that value.
func (p *process) want(path, value string) gjson.Result {
	p.t.Helper()
	for {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			p.t.Fatalf("no frame with %s %q: %v; stderr: %s", path, value, err, p.stderr.String())
		}
		if frame := gjson.Parse(line); frame.Get(path).String() == value {
			return frame
		}
	}
}

// wait returns the exit status.
func (p *process) wait() int {
	err := p.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return 0
}

func TestAPromptThroughAPipe(t *testing.T) {
	p := command(t, t.TempDir(), nil, "rpc")
	p.cmd.Stdin = strings.NewReader(`{"type":"prompt","id":"1","message":"hello"}` + "\n")
	var out bytes.Buffer
	p.cmd.Stdout = &out
	if err := p.cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, p.stderr.String())
	}
	var kinds []string
	for line := range strings.Lines(out.String()) {
		if kind := gjson.Get(line, "type").String(); len(kinds) == 0 || kinds[len(kinds)-1] != kind {
			kinds = append(kinds, kind)
		}
	}
	if got, want := strings.Join(kinds, " "), "ready message_update agent_end response"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRefusalsBeforeReady(t *testing.T) {
	home := t.TempDir()
	bad := filepath.Join(home, "bad.json")
	if err := os.WriteFile(bad, []byte(`{"modles":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"an unknown flag", []string{"--nonsense"}, "unknown flag: --nonsense"},
		{"a stray argument", []string{"serve"}, `unexpected argument "serve"`},
		{"a misspelt word", []string{"rcp"}, `unexpected argument "rcp": did you mean nexus-child rpc?`},
		{"a word behind a flag", []string{"--ascii", "rpc"}, `unexpected argument "rpc": it comes first, before all flags`},
		{"help about a misspelt word", []string{"rcp", "--help"}, `unexpected argument "rcp": did you mean nexus-child rpc?`},
		{"a misspelt flag", []string{"--presett", "x"}, `unknown flag: --presett: did you mean --preset?`},
		{"an unknown session", []string{"--continue", "nobody"}, `continue "nobody": no such session`},
		{"a missing key", []string{"--provider", "openai", "--model", "m"}, `provider "openai" needs a key: set the environment variable OPENAI_API_KEY`},
		{"an unknown model", []string{"--model", "offline/gpt"}, `unknown model "gpt" of provider "offline"`},
		{"an unknown provider", []string{"--provider", "nobody"}, `unknown provider "nobody"`},
		{"an unknown profile", []string{"--profile", "nobody"}, `unknown profile "nobody"`},
		{"an unknown preset", []string{"--preset", "root"}, `unknown preset "root"`},
		{"a missing directory", []string{"--cwd", "/does/not/exist"}, "working directory"},
		{"a bad configuration", []string{"--config", bad}, `member "modles" is not known`},
		{"two prompts", []string{"--system", "a", "--system-file", "b"}, "exclude each other"},
		{"two prompts, one in the environment", []string{"--system", "", "--system-env"}, "--system-env excludes"},
		{"a prompt that is not in the environment", []string{"--system-env"}, "$NEXUS3_SYSTEM is not set"},
		{"a bad durability", []string{"--durability", "none"}, `want "turn" or "os"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sessions := t.TempDir()
			p := command(t, home, nil, append(tt.args, "--session-dir", sessions)...)
			var out bytes.Buffer
			p.cmd.Stdout = &out
			if err := p.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if status := p.wait(); status != 2 || out.Len() > 0 || !strings.Contains(p.stderr.String(), tt.want) {
				t.Errorf("status %d, stdout %q, stderr %q, want …%s…", status, out.String(), p.stderr.String(), tt.want)
			}
			if left, _ := os.ReadDir(sessions); len(left) > 0 {
				t.Errorf("the failed start leaves %s behind", left[0].Name())
			}
		})
	}
}

// kill -9 at any point loses nothing that was acknowledged, and what the
// running turn had said is kept and marked.
func TestKilledInTheMiddleOfATurn(t *testing.T) {
	home, sessions := t.TempDir(), t.TempDir()
	scenario := filepath.Join(home, "scenario.json")
	play := `{"turns":[{"match":"play","steps":[{"flood":{"count":2,"bytes":5000}},{"hang":"until_aborted"}]}],"after":"offline"}`
	if err := os.WriteFile(scenario, []byte(play), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startChild(t, home, "--session-dir", sessions, "--session", "alice", "--preset", "sandboxed", "--system", "be kind", "--scenario", scenario)
	p.send(`{"type":"prompt","id":"1","message":"My name is Alice"}`)
	p.want("type", "response")
	p.send(`{"type":"prompt","id":"2","message":"play"}`)
	said := p.want("event.type", "text_delta").Get("event.delta").String()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.wait()

	p = startChild(t, home, "--session-dir", sessions, "--continue", "alice")
	p.send(`{"type":"get_messages","id":"m"}`)
	messages := p.want("id", "m").Get("messages").Array()
	if len(messages) != 4 || !messages[3].Get("interrupted").Bool() || !strings.HasPrefix(messages[3].Get("content").String(), said) {
		t.Errorf("got %v", messages)
	}
	p.send(`{"type":"get_state","id":"s"}`)
	if state := p.want("id", "s"); state.Get("preset").String() != "sandboxed" || state.Get("system_prompt").String() != "be kind" {
		t.Errorf("the settings did not come back: %s", state)
	}
	p.send(`{"type":"prompt","id":"3","message":"What is my name?"}`)
	p.want("event.delta", "Alice.")
	p.send(`{"type":"shutdown"}`)
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// What was read at the pace at which models write is kept, however suddenly
// the process ends.
func TestWhatWasSeenIsKept(t *testing.T) {
	home, sessions := t.TempDir(), t.TempDir()
	scenario := filepath.Join(home, "scenario.json")
	play := `{"turns":[{"steps":[{"delay_ms":50},{"text":"one two three four five six seven eight","every_ms":50},{"hang":"until_aborted"}]}]}`
	if err := os.WriteFile(scenario, []byte(play), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, deltas := range []int{1, 4} {
		name := fmt.Sprint("seen", deltas)
		p := startChild(t, home, "--session-dir", sessions, "--session", name, "--scenario", scenario)
		p.send(`{"type":"prompt","id":"1","message":"go"}`)
		seen := ""
		for range deltas {
			seen += p.want("event.type", "text_delta").Get("event.delta").String()
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.wait()
		p = startChild(t, home, "--session-dir", sessions, "--continue", name)
		p.send(`{"type":"get_messages","id":"m"}`)
		if kept := p.want("id", "m").Get("messages.1.content").String(); !strings.HasPrefix(kept, seen) {
			t.Errorf("%q was seen and %q is kept", seen, kept)
		}
		p.stdin.Close()
		p.wait()
	}
}

// A parent that dies takes its children with it, though they say nothing and
// their stdin stays open.
func TestStdoutWithoutAReader(t *testing.T) {
	p := startChild(t, t.TempDir())
	p.send(`{"type":"prompt","id":"1","message":"sleep 3600"}`)
	p.want("event.type", "toolcall_input")
	p.stdout.Close()
	if status := p.wait(); status != 1 {
		t.Errorf("exit status %d, stderr %s", status, p.stderr.String())
	}
}

// A parent that does not read is no reason not to do what it says.
func TestShutdownBehindAFloodThatNobodyReads(t *testing.T) {
	p := startChild(t, t.TempDir())
	p.send(`{"type":"prompt","id":"1","message":"flood 10000000"}`)
	p.want("type", "message_update")
	for i := range 200 { // more than any pipe holds
		p.send(fmt.Sprintf(`{"type":"get_state","id":"s%d"}`, i))
	}
	p.send(`{"type":"shutdown"}`)
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, stderr %s", status, p.stderr.String())
	}
}

func TestTerminated(t *testing.T) {
	p := startChild(t, t.TempDir())
	p.send(`{"type":"prompt","id":"1","message":"sleep 3600"}`)
	p.want("event.type", "toolcall_input")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.want("type", "agent_end")
	p.want("cancelled", "true")
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, stderr %s", status, p.stderr.String())
	}
}

func TestASecondProcessIsKeptOut(t *testing.T) {
	home, sessions := t.TempDir(), t.TempDir()
	p := startChild(t, home, "--session-dir", sessions, "--session", "one")
	second := command(t, home, nil, "--session-dir", sessions, "--session", "one")
	if err := second.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if status := second.wait(); status != protocol.ExitSessionInUse || !strings.Contains(second.stderr.String(), "in use by another process") {
		t.Errorf("status %d, stderr %s", status, second.stderr.String())
	}
	p.stdin.Close()
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

func TestSetModelComesBackAndFlagsPrevail(t *testing.T) {
	home, sessions := t.TempDir(), t.TempDir()
	config := `{"providers":{"two":{"type":"offline","models":[{"id":"x"},{"id":"y"}]}},"profiles":{"p":{"model":"two/y","preset":"sandboxed","system":"profile"}}}`
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	state := func(args ...string) gjson.Result {
		p := startChild(t, home, append([]string{"--session-dir", sessions, "--session", "s"}, args...)...)
		p.send(`{"type":"set_model","id":"1","model":"two/x"}`)
		p.want("id", "1")
		p.stdin.Close()
		p.wait()
		p = startChild(t, home, append([]string{"--session-dir", sessions, "--continue", "s"}, args...)...)
		p.send(`{"type":"get_state","id":"1"}`)
		got := p.want("id", "1")
		p.stdin.Close()
		p.wait()
		return got
	}
	if got := state(); got.Get("model").String() != "x" || got.Get("provider").String() != "two" {
		t.Errorf("the model did not come back: %s", got)
	}
	if got := state("--profile", "p"); got.Get("model").String() != "y" || got.Get("preset").String() != "sandboxed" || got.Get("system_prompt").String() != "profile" {
		t.Errorf("the profile does not prevail: %s", got)
	}
}

// A flag that cannot be meant is refused in words for people.
func TestBadFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"--depth=-3":          `--depth must be a whole number from 0 on, not "-3"`,
		"--tool-timeout=x":    `--tool-timeout must be a number, not "x"`,
		"--max-iterations=x":  `--max-iterations must be a whole number, not "x"`,
		"--approval-timeout=": `--approval-timeout must be a duration as in 90s, not ""`,
		"--ascii=perhaps":     `--ascii must be true or false, not "perhaps"`,
		"--nonsense":          "unknown flag: --nonsense",
	} {
		var out, errs bytes.Buffer
		status := run(t.Context(), []string{arg}, strings.NewReader(""), &out, &errs, nil)
		if said := "nexus-child: " + want + "\nTry nexus-child --help.\n"; status != 2 || out.Len() > 0 || errs.String() != said {
			t.Errorf("%s: status %d, %q, want %q", arg, status, errs.String(), said)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for flag, want := range map[string]string{"--help": "Usage: nexus-child", "--version": "nexus-child version dev, child protocol version 1\n"} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), []string{flag}, strings.NewReader(""), &out, &errs, nil); status != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: status %d, %q", flag, status, out.String())
		}
	}
}

// The schema is one that others can read, of this version; who reads but its beginning
// is told nothing.
func TestSchema(t *testing.T) {
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"schema"}, strings.NewReader(""), &out, &errs, nil); status != 0 || errs.Len() > 0 {
		t.Fatalf("status %d, %s", status, errs.String())
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if s.Schema != "https://json-schema.org/draft/2020-12/schema" || !strings.HasSuffix(s.Title, fmt.Sprint(" ", protocol.Version)) {
		t.Errorf("dialect %q, title %q", s.Schema, s.Title)
	}
	of, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for frame, ok := range map[string]bool{
		`{"type":"prompt","id":"1","message":"hello"}`: true,
		`{"type":"prompt","id":"1"}`:                   false,
		`{"type":"agent_end"}`:                         false,
		`{"type":"of_later","n":1}`:                    true,
		`"prompt"`:                                     false,
	} {
		var v any
		if err := json.Unmarshal([]byte(frame), &v); err != nil {
			t.Fatal(err)
		}
		if err := of.Validate(v); (err == nil) != ok {
			t.Errorf("%s: %v", frame, err)
		}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	reader.Close()
	if status := run(t.Context(), []string{"schema"}, strings.NewReader(""), writer, &errs, nil); status != 141 || errs.Len() > 0 {
		t.Errorf("without a reader: status %d, %s", status, errs.String())
	}
	if status := run(t.Context(), []string{"schema", "x"}, strings.NewReader(""), &out, &errs, nil); status != 2 || !strings.Contains(errs.String(), "no arguments") {
		t.Errorf("with an argument: status %d, %s", status, errs.String())
	}
}
