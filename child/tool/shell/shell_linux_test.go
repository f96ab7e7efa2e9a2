package shell_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/sandbox/sandboxtest"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "without-landlock" {
		withoutLandlock()
		os.Exit(0)
	}
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve-hello":
		serveHello()
	case len(os.Args) == 3 && os.Args[1] == "get":
		get(os.Args[2])
		os.Exit(0)
	}
	if err := sandbox.Adopt(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// call runs a command on a tool.
func call(t *testing.T, s tool.Tool, in map[string]any) (tool.Result, error) {
	t.Helper()
	return callContext(t, t.Context(), s, nil, in)
}

// listener hears what a call puts out.
type listener func(text string)

func (listener) Wanted() bool { return true }

func (l listener) Report(text string) { l(text) }

func callContext(t *testing.T, ctx context.Context, s tool.Tool, p tool.Progress, in map[string]any) (tool.Result, error) {
	t.Helper()
	input, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return s.Run(ctx, tool.Call{Input: input, Progress: p})
}

func trusted(dir string) sandbox.Rules {
	return sandbox.Rules{Confinement: sandbox.WherePossible, ReadWrite: []string{dir}, ReadOnly: []string{"/"}, Network: true}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	os.Symlink("/usr", filepath.Join(dir, "away"))
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
	s := shell.New(shell.Options{Dir: dir, Rules: trusted(dir)})
	for _, tt := range []struct {
		name  string
		in    map[string]any
		want  string
		bad   bool
		error string
	}{
		{"output", map[string]any{"command": "echo hello; echo oops >&2; echo again"}, "hello\noops\nagain\n[exit status 0]", false, ""},
		{"none", map[string]any{"command": "true"}, "[exit status 0]", false, ""},
		{"no newline", map[string]any{"command": "printf x"}, "x\n[exit status 0]", false, ""},
		{"status", map[string]any{"command": "echo x; exit 7"}, "x\n[exit status 7]", true, ""},
		{"unknown", map[string]any{"command": "no-such-program 2>/dev/null"}, "[exit status 127]", true, ""},
		{"signal", map[string]any{"command": "kill -SEGV $$"}, "[ended by signal 11 (segmentation fault)]", true, ""},
		{"stdin", map[string]any{"command": "cat; read x || echo eof"}, "eof\n[exit status 0]", false, ""},
		{"cwd", map[string]any{"command": "pwd", "cwd": "sub"}, dir + "/sub\n[exit status 0]", false, ""},
		{"absolute cwd", map[string]any{"command": "pwd", "cwd": dir + "/sub/.."}, dir + "\n[exit status 0]", false, ""},
		{"cd is forgotten", map[string]any{"command": "pwd; cd sub"}, dir + "\n[exit status 0]", false, ""},
		{"environment", map[string]any{"command": "echo $TERM"}, "dumb\n[exit status 0]", false, ""},
		{"nulls", map[string]any{"command": "true", "cwd": nil, "timeout_s": nil, "description": "nothing"}, "[exit status 0]", false, ""},
		{"background", map[string]any{"command": "sleep 1000 & echo started"}, "started\n[exit status 0]", false, ""},
		{"no time", map[string]any{"command": "echo x", "timeout_s": 1e-9}, "[killed after T: it took too long]", true, ""},
		{"timeout", map[string]any{"command": "echo x; sleep 1000", "timeout_s": 3}, "x\n[killed after T: it took too long]", true, ""},
		{"invalid text", map[string]any{"command": `printf 'a\377b\000c'`}, "a\uFFFDb\u2400c\n[exit status 0]", false, ""},
		{"binary", map[string]any{"command": "head -c 5000 /dev/urandom"}, "[5000 bytes of binary output, not shown: redirect it to a file]\n[exit status 0]", false, ""},

		{"no command", map[string]any{}, "", false, `member "command" is missing`},
		{"empty", map[string]any{"command": " \n"}, "", false, `member "command" is empty`},
		{"nul", map[string]any{"command": "echo \x00"}, "", false, `member "command" has a NUL character, which no shell takes`},
		{"unknown member", map[string]any{"command": "x", "shell": "zsh"}, "", false, `member "shell" is not known`},
		{"zero time", map[string]any{"command": "x", "timeout_s": 0}, "", false, `member "timeout_s" must be above 0 and at most 3600, is 0`},
		{"long time", map[string]any{"command": "x", "timeout_s": 3601}, "", false, `member "timeout_s" must be above 0 and at most 3600, is 3601`},
		{"cwd outside", map[string]any{"command": "pwd", "cwd": ".."}, "", false, "cwd .. is not a directory within the working directory: path escapes from parent"},
		{"cwd by link", map[string]any{"command": "pwd", "cwd": "away"}, "", false, "cwd away is not a directory within the working directory: path escapes from parent"},
		{"cwd elsewhere", map[string]any{"command": "pwd", "cwd": "/usr"}, "", false, "cwd /usr is not a directory within the working directory: path escapes from parent"},
		{"cwd missing", map[string]any{"command": "pwd", "cwd": "none"}, "", false, "cwd none is not a directory within the working directory: no such file or directory"},
		{"cwd a file", map[string]any{"command": "pwd", "cwd": "file"}, "", false, "cwd file is not a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := call(t, s, tt.in)
			text := regexp.MustCompile(`after [0-9.]+m?s`).ReplaceAllString(got.Text, "after T")
			if text != tt.want || got.IsError != tt.bad {
				t.Errorf("is_error %v\n%s", got.IsError, cmp.Diff(tt.want, text))
			}
			if (err == nil) != (tt.error == "") || err != nil && err.Error() != tt.error {
				t.Errorf("error %v, want %q", err, tt.error)
			}
		})
	}
}

// The rules hold: nothing outside of the working directory changes.
func TestConfined(t *testing.T) {
	dir, beside := t.TempDir(), t.TempDir()
	for _, network := range []bool{true, false} {
		rules := trusted(dir)
		rules.Network = network
		got, err := call(t, shell.New(shell.Options{Dir: dir, Rules: rules}), map[string]any{"command": "echo x > in; echo x > " + beside + "/out"})
		if err != nil || !got.IsError || !strings.Contains(got.Text, "Read-only file system") && !strings.Contains(got.Text, "Permission denied") {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "in")); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(beside); len(left) > 0 {
			t.Errorf("%v was written", left)
		}
	}
	rules := trusted(dir)
	rules.Blocked = []string{filepath.Join(dir, "secrets")}
	got, err := call(t, shell.New(shell.Options{Dir: dir, Rules: rules}), map[string]any{"command": "touch new"})
	if err != nil || !strings.Contains(got.Text, "[nothing can be made, moved or removed directly in "+dir+", because something below it is blocked]\n[exit status 1]") {
		t.Errorf("%+v, %v", got, err)
	}
}

// Output is heard while the command runs, in whole characters.
func TestProgress(t *testing.T) {
	dir := t.TempDir()
	s := shell.New(shell.Options{Dir: dir, Rules: trusted(dir)})
	fifo := filepath.Join(dir, "fifo")
	var heard strings.Builder
	var once sync.Once
	listen := listener(func(text string) {
		heard.WriteString(text)
		if strings.HasPrefix(heard.String(), "one") {
			once.Do(func() { os.WriteFile(fifo, []byte("go on"), 0o600) }) // else the command would wait for ever
		}
	})
	got, err := callContext(t, t.Context(), s, listen, map[string]any{"command": `mkfifo fifo; echo one; cat fifo; printf 'e\303'; sleep 0.01; printf '\251 \377\n'`})
	if want := "one\ngo one\u00e9 \uFFFD\n"; err != nil || got.Text != want+"[exit status 0]" || heard.String() != want {
		t.Errorf("heard %q, got %q, %v", heard.String(), got.Text, err)
	}
	heard.Reset()
	if _, err := callContext(t, t.Context(), s, listen, map[string]any{"command": "head -c 5000000 /dev/zero | tr '\\0' x"}); err != nil {
		t.Error(err)
	}
	if n := heard.Len(); n > 1<<20+100 || !strings.HasSuffix(heard.String(), "x\n[there is more output than is shown as it comes]\n") {
		t.Errorf("heard %d bytes", n)
	}
}

// What a command had put out until its turn was aborted is its result.
func TestAbort(t *testing.T) {
	dir := t.TempDir()
	s := shell.New(shell.Options{Dir: dir, Rules: trusted(dir)})
	ctx, abort := context.WithCancel(t.Context())
	got, err := callContext(t, ctx, s, listener(func(string) { abort() }), map[string]any{"command": "trap '' TERM; setsid sleep 1000 & echo here; wait"})
	if err != nil || got.Text != "here\n[killed: the turn was aborted]" || !got.IsError {
		t.Errorf("%+v, %v", got, err)
	}
}

// The end of the registry's patience is told like that of the command's own.
func TestCallTimeout(t *testing.T) {
	dir := t.TempDir()
	r := tool.NewRegistry([]tool.Tool{shell.New(shell.Options{Dir: dir, Rules: trusted(dir)})}, tool.Options{Timeout: 3 * time.Second})
	got := r.Run(t.Context(), "", []protocol.ToolCall{{ID: "1", Name: "shell", Input: jsontext.Value(`{"command":"echo x; sleep 1000"}`)}}, nil)
	if told := regexp.MustCompile(`^x\n\[killed after \S+: it took too long\]$`); !got[0].IsError || !told.MatchString(got[0].Text) {
		t.Errorf("%+v", got[0])
	}
}

// The registry gives a command the time that its call names.
func TestTimeLimit(t *testing.T) {
	s := shell.New(shell.Options{Dir: t.TempDir()}).(tool.Timed)
	for input, want := range map[string]time.Duration{
		`{"command":"make"}`: shell.DefaultTimeout, `{"command":"make","timeout_s":3600}`: time.Hour, `{"command":"make","timeout_s":0}`: 0,
	} {
		if got := s.TimeLimit(jsontext.Value(input)); got != want {
			t.Errorf("%s: got %v, want %v", input, got, want)
		}
	}
}

func TestLongOutput(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	s := shell.Showing(100, shell.Options{Dir: dir, Rules: trusted(dir), OutputDir: out})
	got, err := call(t, s, map[string]any{"command": "seq 1 100000"})
	if err != nil || got.IsError {
		t.Fatalf("%+v, %v", got, err)
	}
	files, err := os.ReadDir(out)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	path := filepath.Join(out, files[0].Name())
	var all strings.Builder
	for i := range 100000 {
		fmt.Fprintln(&all, i+1)
	}
	if data, err := os.ReadFile(path); string(data) != all.String() || err != nil {
		t.Errorf("the file has %d bytes, want %d, %v", len(data), all.Len(), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	want := all.String()[:50] + "\n" + fmt.Sprintf("[%d of %d bytes are left out here: %s has all of it]\n", all.Len()-100, all.Len(), path) +
		all.String()[all.Len()-50:] + "[exit status 0]"
	if diff := cmp.Diff(want, got.Text); diff != "" {
		t.Error(diff)
	}

	got, err = call(t, shell.Showing(100, shell.Options{Dir: dir, Rules: trusted(dir)}), map[string]any{"command": "seq 1 1000"})
	if err != nil || !strings.Contains(got.Text, "[3793 of 3893 bytes are left out here: not kept, so run it again with its output in a file]\n") {
		t.Errorf("%q, %v", got.Text, err)
	}
	got, err = call(t, s, map[string]any{"command": "head -c 100000 /dev/urandom"})
	if err != nil || !regexp.MustCompile(`^\[100000 bytes of binary output, not shown: `+regexp.QuoteMeta(out)+`/shell-\S+ has all of it\]\n\[exit status 0\]$`).MatchString(got.Text) {
		t.Errorf("%q, %v", got.Text, err)
	}
}

// What does not fit into a file is counted, and old files make room.
func TestHugeOutput(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	for i, size := range []int64{100 << 20, 60 << 20, 60 << 20, 60 << 20} {
		name := filepath.Join(out, fmt.Sprintf("shell-old-%d.txt", i))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		os.Truncate(name, size)
		os.Chtimes(name, time.Unix(int64(i), 0), time.Unix(int64(i), 0))
	}
	os.WriteFile(filepath.Join(out, "another.txt"), nil, 0o600)
	got, err := call(t, shell.New(shell.Options{Dir: dir, Rules: trusted(dir), OutputDir: out}), map[string]any{"command": "head -c 70000000 /dev/zero | tr '\\0' x"})
	if err != nil || got.IsError || len(got.Text) > 33<<10 || !strings.Contains(got.Text, "has the first 64 MiB of all of it]") {
		t.Errorf("%.200q, %v", got.Text, err)
	}
	var names []string
	entries, _ := os.ReadDir(out)
	for _, e := range entries {
		info, _ := e.Info()
		names = append(names, fmt.Sprint(strings.TrimLeft(e.Name(), "shel-")[:3], " ", info.Size()))
	}
	if diff := cmp.Diff([]string{"ano 0", "202 67108864", "old 62914560", "old 62914560", "old 62914560"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestScope(t *testing.T) {
	s := shell.New(shell.Options{Dir: "/"})
	got, err := s.Scope(jsontext.Value(`{"command":" go test ./... > log\nls","cwd":"sub"}`))
	want := tool.Scope{
		Action: protocol.ActionExecute, Paths: []string{"sub"}, Command: " go test ./... > log\nls",
		Programs: []string{"go", ">", "ls"}, Summary: "run: go test ./... > log …",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if _, err := s.Scope(jsontext.Value(`{}`)); err == nil {
		t.Error("no error")
	}
	if spec := s.Spec(); !spec.InputSchema.IsValid() || !strings.Contains(string(spec.InputSchema), "default 120") {
		t.Errorf("%s", spec.InputSchema)
	}
}

// On a kernel that cannot confine, each preset says what that means.
func TestWithoutLandlock(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const reason = "the kernel cannot confine programs: it has no Landlock, or it is switched off (Linux 6.2 or newer has what is needed)"
	want := "hello\n[exit status 0], <nil>\n" +
		"hello\n[this was not confined to the working directory: " + reason + "]\n[exit status 0], <nil>\n" +
		", nothing can be run under these permissions: start /bin/bash: " + reason + "\n"
	got, err := exec.Command(self, "without-landlock").CombinedOutput()
	if diff := cmp.Diff(want, strings.Replace(string(got), "/bin/sh:", "/bin/bash:", 1)); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// withoutLandlock runs a command on a kernel that has none.
func withoutLandlock() {
	if err := sandboxtest.WithoutLandlock(); err != nil {
		panic(err)
	}
	for _, rules := range []sandbox.Rules{{}, trusted("/tmp"), {Confinement: sandbox.Always}} {
		got, err := shell.New(shell.Options{Dir: "/tmp", Rules: rules}).Run(context.Background(), tool.Call{Input: jsontext.Value(`{"command":"echo hello"}`)})
		fmt.Printf("%s, %v\n", got.Text, err)
	}
}
