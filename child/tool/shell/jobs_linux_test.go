package shell_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"nexus.internal/child/permission"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
)

// serveHello is a small development server: it says where it listens.
func serveHello() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("listening on http://%s/\n", listener.Addr())
	panic(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("asked for", r.URL.Path)
		_, _ = io.WriteString(w, "hello")
	})))
}

// get fetches a page.
func get(url string) {
	response, err := http.Get(url)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	_, _ = io.Copy(os.Stdout, response.Body)
}

// desk is an agent's jobs in a directory.
type desk struct {
	*testing.T
	dir   string
	o     shell.Options
	jobs  *shell.Jobs
	tools map[string]tool.Tool
}

func newDesk(t *testing.T, rules ...sandbox.Rules) *desk {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{T: t, dir: dir, jobs: shell.NewJobs(), tools: map[string]tool.Tool{}}
	d.o = shell.Options{Dir: dir, Rules: trusted(dir), OutputDir: filepath.Join(dir, "kept")}
	if len(rules) > 0 {
		d.o.Rules = rules[0]
		d.o.Rules.ReadWrite = []string{dir}
	}
	_, others := d.jobs.Tools()
	for _, other := range others {
		d.tools[other.Spec().Name] = other
	}
	t.Cleanup(d.jobs.Close)
	return d
}

// start starts a job.
func (d *desk) start(ctx context.Context, in map[string]any) (string, error) {
	d.Helper()
	input, err := json.Marshal(in)
	if err != nil {
		d.Fatal(err)
	}
	result, err := d.jobs.Start(ctx, d.o, tool.Call{Input: input})
	return result.Text, err
}

// begin starts a job, which must succeed.
func (d *desk) begin(name, command string) {
	d.Helper()
	if _, err := d.start(d.Context(), map[string]any{"name": name, "command": command}); err != nil {
		d.Fatal(err)
	}
}

// use calls another tool.
func (d *desk) use(name string, in map[string]any) string {
	d.Helper()
	if name == "start" {
		text, err := d.start(d.Context(), in)
		return text + fmt.Sprint("error: ", err)
	}
	result, err := call(d.T, d.tools[name], in)
	if err != nil {
		return "error: " + err.Error()
	}
	return regexp.MustCompile(`(for|after) [0-9.]+m?s`).ReplaceAllString(result.Text, "$1 T")
}

func (d *desk) want(want, name string, in map[string]any) {
	d.Helper()
	if got := d.use(name, in); got != want {
		d.Errorf("%s %v: got %q, want %q", name, in, got, want)
	}
}

// A development server started as a job is reached by a later command of the same agent, and
// by none once it was stopped.
func TestServerAsAJob(t *testing.T) {
	d := newDesk(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d.begin("web", self+" serve-hello")
	said := d.use("job_output", map[string]any{"job": "web", "wait_s": 60})
	url := regexp.MustCompile(`http://\S+`).FindString(said)
	if url == "" || !strings.HasSuffix(said, "\n[job web running for T]") {
		t.Fatalf("it said %q", said)
	}
	s := shell.New(d.o)
	if got, err := call(t, s, map[string]any{"command": self + " get " + url}); err != nil || got.Text != "hello\n[exit status 0]" {
		t.Errorf("%+v, %v", got, err)
	}
	d.want("asked for /\n[job web running for T]", "job_output", map[string]any{"job": "web", "wait_s": 60})
	d.want("[job web ended: stopped by job_stop]", "job_stop", map[string]any{"job": "web"})
	if got, err := call(t, s, map[string]any{"command": self + " get " + url}); err != nil || !strings.Contains(got.Text, "connection refused") {
		t.Errorf("%+v, %v", got, err)
	}
	if notices := d.jobs.Notices(); notices != "" {
		t.Errorf("told again: %q", notices)
	}
}

// The end of a turn is no end of a job, which reads what it is given, ends by itself, and is
// told of once.
func TestJobOutlivesItsTurn(t *testing.T) {
	d := newDesk(t)
	turn, abort := context.WithCancel(t.Context())
	text, err := d.start(turn, map[string]any{"command": "cat; echo done; exit 3", "stdin": "one\n"})
	if err != nil || text != "[job job1 is running: job_output shows its output, job_stop ends it]" {
		t.Fatalf("%q, %v", text, err)
	}
	abort()
	d.want("one\n[job job1 running for T]", "job_output", map[string]any{"job": "job1", "wait_s": 60})
	d.want("[4 bytes were given to job job1]", "job_input", map[string]any{"job": "job1", "text": "two\n"})
	d.want("two\n[job job1 running for T]", "job_output", map[string]any{"job": "job1", "wait_s": 60})
	if notices := d.jobs.Notices(); notices != "" {
		t.Errorf("told of %q", notices)
	}
	d.begin("late", "exit 1")
	d.want("[6 bytes were given to job job1]", "job_input", map[string]any{"job": "job1", "text": "three\n", "end": true})
	d.want("three\ndone\n[job job1 ended: exit status 3]", "job_output", map[string]any{"job": "job1", "wait_s": 60, "until": "end"})
	d.want("one\ntwo\nthree\ndone\n[job job1 ended: exit status 3]", "job_output", map[string]any{"job": "job1", "since": 0})
	d.want("done\n[job job1 ended: exit status 3]", "job_output", map[string]any{"job": "job1", "since": 14})
	d.want("error: job job1 has ended: exit status 3", "job_input", map[string]any{"job": "job1", "text": "x"})
	shell.AwaitEnd(d.jobs, "late")
	if notices := d.jobs.Notices(); notices != "[job late ended: exit status 1]" {
		t.Errorf("told of %q", notices)
	}
	if notices := d.jobs.Notices(); notices != "" {
		t.Errorf("told again: %q", notices)
	}
	d.want("job1: ended: exit status 3, 19 bytes of output: cat; echo done; exit 3\nlate: ended: exit status 1, 0 bytes of output: exit 1\n", "job_list", nil)
	if _, err := d.start(turn, map[string]any{"command": "true"}); err == nil {
		t.Error("a turn that was aborted has started a job")
	}
}

// Of much output the latest is at hand, and a file has all of it.
func TestMuchOutputOfAJob(t *testing.T) {
	d := newDesk(t)
	d.begin("much", "seq 1 100000")
	shell.AwaitEnd(d.jobs, "much")
	var all strings.Builder
	for i := range 100000 {
		fmt.Fprintln(&all, i+1)
	}
	got := d.use("job_output", map[string]any{"job": "much"})
	left := regexp.MustCompile(`^\[bytes 0 to (\d+) are not at hand: (\S+) has all of it\]\n`).FindStringSubmatch(got)
	if left == nil || left[1] != fmt.Sprint(all.Len()-64<<10) {
		t.Fatalf("%.200q", got)
	}
	if data, err := os.ReadFile(left[2]); err != nil || string(data) != all.String() {
		t.Errorf("the file has %d of %d bytes, %v", len(data), all.Len(), err)
	}
	middle := all.Len() - 32<<10
	shown := all.String()[all.Len()-64<<10 : middle]
	if want := fmt.Sprintf("%s\n[job much ended: exit status 0; %d more bytes of output, since %d]", shown, 32<<10, middle); got[len(left[0]):] != want {
		t.Errorf("got …%q", got[len(got)-200:])
	}
	d.want(all.String()[middle:]+"[job much ended: exit status 0]", "job_output", map[string]any{"job": "much"})
}

// Nothing that a job starts outlives it, whatever session, group or parent it has: each holds
// a pipe open, whose end tells that all are gone.
func TestNothingOutlivesAJob(t *testing.T) {
	for name, command := range map[string]string{
		"a session":     "setsid sleep 1000 & echo up; wait",
		"a double fork": "(setsid sh -c 'setsid sleep 1000 &' &) ; echo up; sleep 1000",
		"deaf":          "trap '' TERM HUP INT; nohup sleep 1000 & echo up; while :; do sleep 1000; done",
		"the end":       "(setsid sleep 1000 &) ; echo up; exit",
		"of the reaper": "setsid sleep 1000 & echo up; read go; kill -9 $PPID; sleep 1000",
	} {
		for _, end := range []string{"job_stop", "Close", "Forget", "job_stop, unconfined"} {
			t.Run(name+" by "+end, func(t *testing.T) {
				d := newDesk(t)
				if end == "job_stop, unconfined" {
					d = newDesk(t, sandbox.Rules{})
				}
				fifo := filepath.Join(d.dir, "fifo")
				if err := shell.MakeFIFO(fifo); err != nil {
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
				d.begin("bad", "exec 9>fifo; "+command)
				d.use("job_output", map[string]any{"job": "bad", "wait_s": 60})
				d.use("job_input", map[string]any{"job": "bad", "text": "go\n"})
				held.Close()
				if strings.HasPrefix(name, "of the reaper") && strings.HasSuffix(end, "unconfined") {
					d.want("[job bad ended: ended by signal 9 (killed)]", "job_output", map[string]any{"job": "bad", "wait_s": 60, "until": "end"})
				}
				switch end {
				default:
					d.use("job_stop", map[string]any{"job": "bad"})
				case "Close":
					d.jobs.Close()
				case "Forget":
					d.jobs.Forget()
				}
				if got, err := io.ReadAll(reader); len(got) > 0 || err != nil { // returns when nobody can write any more
					t.Errorf("%q, %v", got, err)
				}
			})
		}
	}
}

// Jobs are bounded, and what is wrong with a call is said.
func TestBoundsOfJobs(t *testing.T) {
	d := newDesk(t)
	d.want("There are no jobs.", "job_list", nil)
	d.want(`error: there is no job "web", and no other`, "job_output", map[string]any{"job": "web"})
	for i := range 8 {
		d.begin(fmt.Sprint("sleep", i), "sleep 1000")
	}
	for _, tt := range []struct {
		in   map[string]any
		want string
	}{
		{map[string]any{"command": "true"}, "8 jobs are running already: stop one with job_stop"},
		{map[string]any{"command": "true", "name": "sleep3"}, "job sleep3 is running already"},
		{map[string]any{"command": "true", "name": "../x"}, `member "name" is "../x", want up to 32 letters, digits, '.', '_' and '-'`},
		{map[string]any{"command": " "}, `member "command" is empty`},
		{map[string]any{"command": "cat", "stdin": strings.Repeat("x", 256<<10+1)}, `member "stdin" has 262145 bytes, more than 262144: write it to a file`},
		{map[string]any{"command": "true", "timeout_s": 5}, `member "timeout_s" is not known`},
	} {
		if text, err := d.start(t.Context(), tt.in); err == nil || err.Error() != tt.want {
			t.Errorf("%.100v: %q, %v, want %s", tt.in, text, err, tt.want)
		}
	}
	d.want(`error: there is no job "x", only sleep0, sleep1, sleep2, sleep3, sleep4, sleep5, sleep6, sleep7`, "job_stop", map[string]any{"job": "x"})
	d.want(`error: member "wait_s" must be 0 to 3600, is 3601`, "job_output", map[string]any{"job": "sleep1", "wait_s": 3601})
	d.want(`error: member "since" must be 0 or more, is -1`, "job_output", map[string]any{"job": "sleep1", "since": -1})
	d.want(`error: member "until" is "noon", want output or end`, "job_output", map[string]any{"job": "sleep1", "until": "noon"})
	d.want("[job sleep3 ended: stopped by job_stop]", "job_stop", map[string]any{"job": "sleep3"})
	d.want(`error: cwd .. is not a directory within the working directory: path escapes from parent`, "start", map[string]any{"command": "true", "cwd": ".."})
	d.begin("flood", "yes")
	shell.AwaitEnd(d.jobs, "flood")
	if got := d.jobs.Notices(); !strings.HasPrefix(got, "[job flood ended: stopped, because it has put out more than 256 MiB; job_output shows ") {
		t.Errorf("told of %q", got)
	}
	if got := d.use("job_output", map[string]any{"job": "flood"}); !strings.Contains(got, " has the first 16 MiB of all of it]\ny\ny\n") {
		t.Errorf("got %.300q", got)
	}
	for i := range 20 { // the oldest that have ended are forgotten
		name := fmt.Sprint("short", i)
		d.begin(name, "true")
		shell.AwaitEnd(d.jobs, name)
	}
	d.begin("short19", "sleep 1000") // a name may be used again
	if lines := strings.Split(d.use("job_list", nil), "\n"); len(lines) != 17 || !strings.HasPrefix(lines[14], "short18: ended: exit status 0") ||
		!strings.HasPrefix(lines[15], "short19: running for T, 0 bytes of output: sleep 1000") {
		t.Errorf("%q", lines)
	}
}

// denies allows no permit.
type denies struct{}

func (denies) Allows(permission.Permit) bool { return false }

// A job that may not be any more is stopped, and why is told.
func TestReviewOfJobs(t *testing.T) {
	d := newDesk(t)
	d.begin("server", "sleep 1000")
	d.begin("short", "true")
	shell.AwaitEnd(d.jobs, "short")
	d.jobs.Review("stopped for a reason", denies{})
	shell.AwaitEnd(d.jobs, "server")
	if got, want := d.jobs.Notices(), "[job server ended: stopped for a reason]\n[job short ended: exit status 0]"; got != want {
		t.Errorf("told of %q, want %q", got, want)
	}
}

// What a command reads as its input is what its call says, and no more.
func TestStdin(t *testing.T) {
	dir := t.TempDir()
	s := shell.New(shell.Options{Dir: dir, Rules: trusted(dir)})
	long := strings.Repeat("line\n", 40000)
	for _, tt := range []struct{ command, stdin, want string }{
		{"cat", "one\ntwo", "one\ntwo\n[exit status 0]"},
		{"wc -c", long, "200000\n[exit status 0]"},
		{"true", long, "[exit status 0]"},
		{"exec <&-; echo closed", long, "closed\n[exit status 0]"},
		{"read x; echo $x", "", "\n[exit status 0]"},
	} {
		got, err := call(t, s, map[string]any{"command": tt.command, "stdin": tt.stdin})
		if err != nil || got.Text != tt.want {
			t.Errorf("%s: %.100q, %v", tt.command, got.Text, err)
		}
	}
}

// Programs that want a terminal have one, and what they show there is told as plain text.
func TestAtATerminal(t *testing.T) {
	dir := t.TempDir()
	for _, rules := range []sandbox.Rules{trusted(dir), {Confinement: sandbox.Always, ReadWrite: []string{dir}}, {}} {
		s := shell.New(shell.Options{Dir: dir, Rules: rules})
		for _, tt := range []struct{ command, stdin, want string }{
			{"test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM", "", "40 120\nxterm\n[exit status 0]"},
			{"printf '\\033[1mbold\\033[0m 1%%\\r2%%\\n'; exit 3", "", "bold 1%\n2%\n[exit status 3]"},
			{"read x || echo got $x", "", "got\n[exit status 0]"},
			{"stty -echo; echo ready; head -n 2 | tail -n 1", "one\ntwo\n", "two\n[exit status 0]"},
			{"echo hidden > /dev/tty; tty > /dev/null", "", "hidden\n[exit status 0]"},
		} {
			got, err := call(t, s, map[string]any{"command": tt.command, "stdin": tt.stdin, "terminal": true})
			if err != nil || !strings.HasSuffix(got.Text, tt.want) || tt.stdin == "" && got.Text != tt.want {
				t.Errorf("%d %s: %q, %v", rules.Confinement, tt.command, got.Text, err)
			}
		}
	}
	d := newDesk(t, sandbox.Rules{Confinement: sandbox.Always})
	if _, err := d.start(t.Context(), map[string]any{"command": "stty -echo; printf 'name? '; read x; echo hello $x; read y; echo gone", "name": "ask", "terminal": true}); err != nil {
		t.Fatal(err)
	}
	d.want("name? \n[job ask running for T]", "job_output", map[string]any{"job": "ask", "wait_s": 60})
	d.use("job_input", map[string]any{"job": "ask", "text": "you\n"})
	d.want("hello you\n[job ask running for T]", "job_output", map[string]any{"job": "ask", "wait_s": 60})
	d.use("job_input", map[string]any{"job": "ask", "text": "\x03"}) // Ctrl-C
	d.want("[job ask ended: ended by signal 2 (interrupt)]", "job_output", map[string]any{"job": "ask", "wait_s": 60, "until": "end"})
}
