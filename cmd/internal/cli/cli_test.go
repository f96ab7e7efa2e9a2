package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/cmd/internal/cli"
)

// outcome is what a command line did.
type outcome struct {
	status         int
	stdout, stderr string
}

// run runs nexus-rpc against a server that answers every POST with handler.
func run(t *testing.T, handler http.HandlerFunc, stdout io.Writer, args ...string) outcome {
	t.Helper()
	var errors strings.Builder
	got := runTo(t, handler, stdout, &errors, args...)
	got.stderr = errors.String()
	return got
}

// runTo is run, with a stderr that may be watched.
func runTo(t *testing.T, handler http.HandlerFunc, stdout, stderr io.Writer, args ...string) outcome {
	t.Helper()
	var out strings.Builder
	if stdout == nil {
		stdout = &out
	}
	got := runWith(t, handler, cli.Options{Stdin: strings.NewReader(onStdin), Stdout: stdout, Stderr: stderr}, args...)
	got.stdout = out.String()
	return got
}

// runWith runs a command line with a server that handler plays, whose address stands for SERVER.
func runWith(t *testing.T, handler http.HandlerFunc, o cli.Options, args ...string) outcome {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			key, _ := auth.Parse("nxk_test")
			address := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
			proof := key.Prove(r.URL.Query().Get("challenge"), address)
			_, _ = io.WriteString(w, `{"status":"ok","service":"nexus","version":"test","proof":"`+proof+`"}`)
			return
		}
		handler(w, r)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	o.Name, o.Environ = "nexus-rpc", []string{"NEXUS_HOME=" + t.TempDir(), "NEXUS3_API_KEY=nxk_test"}
	if i := slices.Index(args, "SERVER"); i >= 0 {
		args = slices.Clone(args)
		args[i] = server.URL
	} else if !slices.Contains(args, "version") && !slices.Contains(args, "import") { // which need no server, and refuse it
		args = append([]string{"--port", u.Port()}, args...)
	}
	return outcome{status: cli.New(o).Run(context.Background(), args)}
}

// onStdin is what the command lines of these tests have on stdin: no text.
const onStdin = "\xff\x00"

// streaming answers a send with pieces and a result.
func streaming(result string, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range pieces {
			chunk, _ := json.Marshal(piece)
			fmt.Fprintf(w, "event: stream_data\ndata: {\"params\":{\"chunk\":%s}}\n\n", chunk)
		}
		fmt.Fprintf(w, "event: response\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"request_id\":\"r\",%s}}\n\n", result)
	}
}

// A message that cannot be one is refused by its name, and not sent.
func TestSendChecksTheMessage(t *testing.T) {
	for _, test := range []struct {
		message, want string
		status        int
	}{
		{"-", "the message on stdin is not UTF-8", 1},
		{"", "MESSAGE is empty", 2},
		{" \n", "MESSAGE is empty", 2},
		{"\xff", "MESSAGE is not UTF-8", 2},
	} {
		got := run(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") }, nil, "send", "a", test.message)
		if got.status != test.status || !strings.Contains(got.stderr, test.want) {
			t.Errorf("send %q: got %d, %q", test.message, got.status, got.stderr)
		}
	}
}

// What is printed is the answer, whatever came in pieces: all of it, or the
// command fails.
func TestSendPrintsTheWholeAnswer(t *testing.T) {
	const limit = 8 << 20
	long := strings.Repeat("x", limit)
	for _, test := range []struct {
		name   string
		result string
		pieces []string
		want   outcome
	}{
		{"in pieces", `"content":"one two"`, []string{"one ", "two"}, outcome{0, "one two\n", ""}},
		{"its own newline", `"content":"one\n"`, []string{"one\n"}, outcome{0, "one\n", ""}},
		{"the end did not come", `"content":"one two"`, []string{"one"}, outcome{0, "one two\n", ""}},
		{"nothing came", `"content":"one two","replayed":true`, nil, outcome{0, "one two\n", ""}},
		{"the beginning did not come", `"content":"one two"`, []string{"two"}, outcome{1, "two\n", "what is printed is not the answer"}},
		{"more came", `"content":"one"`, []string{"one two"}, outcome{1, "one two\n", "what is printed is not the answer"}},
		{"cancelled", `"cancelled":true`, []string{"one"}, outcome{1, "one\n", "cancelled"}},
		{"more than is kept", `"content":"` + long[1:] + `","truncated":true`, []string{long, "y"}, outcome{0, long + "y\n", "too long"}},
		{"not all of what is kept came", `"content":"` + long[1:] + `","truncated":true`, []string{"x"}, outcome{0, long[1:] + "\n", "too long"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := run(t, streaming(test.result, test.pieces...), nil, "send", "a", "hello")
			if got.status != test.want.status || got.stdout != test.want.stdout || !strings.Contains(got.stderr, test.want.stderr) {
				t.Errorf("got %d, %d bytes %.40q, %q", got.status, len(got.stdout), got.stdout, got.stderr)
			}
		})
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A turn goes on without a reader of its text, and its end is waited for.
func TestSendWithoutReader(t *testing.T) {
	got := run(t, streaming(`"content":"one two"`, "one ", "two"), brokenPipe{}, "send", "a", "hello")
	if got.status != 1 || !strings.Contains(got.stderr, "broken pipe") {
		t.Errorf("got %d %q, want 1 and why", got.status, got.stderr)
	}
}

// Whatever a verb prints, a stdout that takes nothing is its failure, and said once.
func TestFullStdout(t *testing.T) {
	serve := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[]}}`)
	}
	for _, args := range [][]string{{}, {"--help"}, {"help", "send"}, {"send", "--help"}, {"version"}, {"list"}, {"detect"}} {
		if got := run(t, serve, brokenPipe{}, args...); got.status != 1 || got.stderr != "nexus-rpc: broken pipe\n" {
			t.Errorf("%v: got %d %q", args, got.status, got.stderr)
		}
	}
}

// --help shows no help of another command: behind a verb that is none it is a usage error.
func TestHelpOfUnknownVerb(t *testing.T) {
	for args, want := range map[string]string{
		"nosuch --help":      `unknown verb "nosuch": see nexus-rpc --help`,
		"crate -h":           `unknown verb "crate": did you mean nexus-rpc create?`,
		"--help lits":        `unknown verb "lits": did you mean nexus-rpc list?`,
		"keys creat --help":  `unknown verb "creat": did you mean nexus-rpc keys create?`,
		"keys --help revok":  `unknown verb "revok": did you mean nexus-rpc keys revoke?`,
		"serve --help":       `unknown verb "serve": it is one of nexus (nexus serve)`,
		"agents":             `unknown verb "agents": did you mean nexus-rpc list?`,
		"keys agents":        `unknown verb "agents": see nexus-rpc keys --help`,
		"stat --help":        `unknown verb "stat": did you mean nexus-rpc status?`,
		"--help":             "",
		"--help keys create": "",
		"keys -h":            "",
		"send worker --help": "",
	} {
		got := run(t, nil, nil, strings.Fields(args)...)
		if want == "" {
			if got.status != 0 || got.stderr != "" || !strings.Contains(got.stdout, "Usage:") {
				t.Errorf("%s: got %d %q %q, want help", args, got.status, got.stdout, got.stderr)
			}
		} else if got.status != 2 || got.stdout != "" || got.stderr != "nexus-rpc: "+want+"\n" {
			t.Errorf("%s: got %d %q %q, want 2 and %s", args, got.status, got.stdout, got.stderr, want)
		}
	}
}

// A call's input is shown as JSON that is escaped once, whatever its text has.
func TestMessagesShowCalls(t *testing.T) {
	const input = `{"command":"printf \"a\\tb\\\\n\" \u001b\n"}`
	got := run(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"total":1,"messages":[{"role":"assistant","content":"","tool_calls":[{"id":"1","name":"shell","input":`+input+`}]}]}}`)
	}, nil, "messages", "a")
	if want := "assistant:  → shell " + input + "\n"; got.stdout != want {
		t.Errorf("got %q, want %q", got.stdout, want)
	}
}

// No line of a table ends with blanks.
func TestTablesEndWithTheirText(t *testing.T) {
	got := run(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"total":3,"sessions":[{"name":"a","cwd":"/a/long/way"},{"name":"b","cwd":"/b"},{"name":"c","damaged":"it ends"}]}}`)
	}, nil, "sessions")
	for line := range strings.Lines(got.stdout) {
		if line != strings.TrimRight(line, " \n")+"\n" {
			t.Errorf("ends with blanks: %q", line)
		}
	}
	if !strings.Contains(got.stdout, "damaged: it ends\n") {
		t.Errorf("got %q", got.stdout)
	}
}

// All verbs show times alike: those of this machine, and by which zone. sessions named none, and
// keys had those of UTC.
func TestTimes(t *testing.T) {
	at := time.Date(2026, 1, 20, 9, 11, 2, 0, time.UTC)
	want := at.Local().Format("2006-01-02 15:04:05 MST")
	for verb, result := range map[string]string{
		"sessions":  fmt.Sprintf(`{"total":1,"sessions":[{"name":"a","updated_at":%d}]}`, at.Unix()),
		"keys":      `{"keys":[{"key_id":"k","scope":"read","expires_at":"2026-01-20T09:11:02Z"}]}`,
		"approvals": `{"agents":[{"agent_id":"a","pending":[{"request_id":"p","turn_id":"1","tool_id":"c","tool_name":"shell","action":"execute","summary":"s","reason":"r","input":{},"deadline":"2026-01-20T09:11:02Z"}]}]}`,
	} {
		got := run(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":`+result+`}`)
		}, nil, verb)
		if got.status != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("%s: %+v, want %s in it", verb, got, want)
		}
	}
}

// A reader that wants no more, as head, is the end of a verb and not its failure.
func TestNoReader(t *testing.T) {
	serve := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") { // nothing happens
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": open\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[],"sessions":[]}}`)
	}
	for _, args := range [][]string{{"list"}, {"sessions"}, {"--json", "list"}, {"events", "a"}, {"version"}} {
		reader, stdout, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stdout.Close()
		reader.Close()
		if got := run(t, serve, stdout, args...); got.status != cli.ExitNoReader || got.stderr != "" {
			t.Errorf("%v: got %d %q", args, got.status, got.stderr)
		}
	}
}

// A model wrote what somebody approves: nothing of it acts on the terminal, or is
// hidden by it.
func TestApprovalsShowWhatIsAsked(t *testing.T) {
	for input, want := range map[string]string{
		`{"command":"make"}`:                                          `{"command":"make"}`,
		"{\"command\":\"rm\u009b2K\u202emake\"}":                      `{"command":"rm\u009b2K\u202emake"}`,
		`{"command":"echo \"a\u001b[2K\"` + "\U000e0041\u202e" + `"}`: `{"command":"echo \"a\u001b[2K\"\udb40\udc41\u202e"}`,
	} {
		got := run(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[{"agent_id":"a","pending":[{"request_id":"r-1","tool_name":"shell",`+
				`"input":`+input+`,"reason":"it\u001b[8m runs\nprograms","deadline":"later"}]}]}}`)
		}, nil, "approvals")
		want = "r-1 a: shell " + want + "\n  " + `"it\x1b[8m runs\nprograms"` + "; without an answer denied at later\n"
		if diff := cmp.Diff(outcome{0, want, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// The whole of a long command is shown, its end too, in lines that none of it can make.
func TestApprovalsShowTheWholeCommand(t *testing.T) {
	command := "echo " + strings.Repeat("x", 20_000) + "\n\x1b[1Ar-2 b: shell ls\n  it is fine; without an answer denied at 2099\nrm -rf ~"
	text, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[{"agent_id":"a","pending":[{"request_id":"r-1","tool_name":"shell","paths":["/w"],`+
			`"input":{"truncated":true,"size":20100,"head":"{\"command\":\"echo x","tail":"x\"}"},"command":`+string(text)+`,"reason":"it runs","deadline":"later"}]}]}}`)
	}, nil, "approvals")
	want := fmt.Sprintf(`r-1 a: shell {"truncated":true,"size":20100,"head":"{\"command\":\"echo x","tail":"x\"}"}`+" (cut: its input has 20100 bytes)\n  the command alone, without the rest of the input, of which only the beginning and the end are shown, %d bytes:\n  | %s\n", len(command), command[:20_005]) +
		`  | "\x1b[1Ar-2 b: shell ls"` + "\n  |   it is fine; without an answer denied at 2099\n  | rm -rf ~\n  in /w\n  it runs; without an answer denied at later\n"
	if diff := cmp.Diff(outcome{0, want, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A command of several lines is shown once, in its lines.
func TestApprovalsShowACommandOnce(t *testing.T) {
	command := "cat <<E\n\"\u202eone\"\nE"
	text, err := json.Marshal(command)
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[{"agent_id":"a","pending":[{"request_id":"r-1","tool_name":"shell",`+
			`"input":{"background":true,"command":`+string(text)+`,"timeout":5},"command":`+string(text)+`,"reason":"it runs","deadline":"later"}]}]}}`)
	}, nil, "approvals")
	want := `r-1 a: shell {"background":true,"command":…,"timeout":5}` + fmt.Sprintf("\n  the whole command, %d bytes:\n", len(command)) +
		"  | cat <<E\n" + `  | "\"\u202eone\""` + "\n  | E\n  it runs; without an answer denied at later\n"
	if diff := cmp.Diff(outcome{0, want, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A call that starts an MCP server has the server's command, and not in its input.
func TestApprovalsShowTheCommandOfAServer(t *testing.T) {
	got := run(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[{"agent_id":"a","pending":[{"request_id":"r-1","tool_name":"mcp_docs_connect",`+
			`"input":{},"command":"/bin/sh -c 'id; exec cat'","reason":"it runs","deadline":"later"}]}]}}`)
	}, nil, "approvals")
	want := "r-1 a: mcp_docs_connect {}\n  the whole command, 25 bytes:\n  | /bin/sh -c 'id; exec cat'\n  it runs; without an answer denied at later\n"
	if diff := cmp.Diff(outcome{0, want, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What somebody decides by is shown wherever the request has it: what a program reads, the paths of a program of
// another make, and the summary where there is nothing else.
func TestApprovalsShowAllThatThereIs(t *testing.T) {
	for _, tt := range []struct{ request, want string }{
		{
			`"tool_name":"shell","input":{"command":"sh","stdin":"rm -r ~"},"command":"sh"`,
			`shell {"command":"sh","stdin":"rm -r ~"}` + "\n",
		},
		{
			`"tool_name":"shell","input":{"truncated":true,"size":17000,"head":"{\"command\":\"sh\",\"stdin\":\"rm","tail":"x\"}"},"command":"sh"`,
			`shell {"truncated":true,"size":17000,"head":"{\"command\":\"sh\",\"stdin\":\"rm","tail":"x\"}"} (cut: its input has 17000 bytes)` + "\n  the command alone, without the rest of the input, of which only the beginning and the end are shown, 2 bytes:\n  | sh\n",
		},
		{
			`"tool_name":"shell","action":"execute","input":{"command":"bash\n-s","terminal":true,"stdin":"a\u001b\nrm -r ~\n","cwd":"x"},"command":"bash\n-s"`,
			`shell {"command":…,"terminal":true,"stdin":…,"cwd":"x"}` + "\n  the whole command, 7 bytes:\n  | bash\n  | -s\n  the whole stdin, 11 bytes:\n  | \"a\\x1b\"\n  | rm -r ~\n  | \n",
		},
		{
			`"tool_name":"job_input","action":"execute","input":{"text":"a\nb","job":"sh"}`,
			`job_input {"text":…,"job":"sh"}` + "\n  the whole text, 3 bytes:\n  | a\n  | b\n",
		},
		{
			`"tool_name":"fileChange","input":{"changes":[]},"paths":["/w/a"],"options":[{"option_id":"y","name":"Yes","kind":"allow_once"}]`,
			`fileChange {"changes":[]}` + "\n  in /w/a\n",
		},
		{`"tool_name":"mcp_docs_connect","input":{},"summary":"start the MCP server docs\u009b: http://x"`, `mcp_docs_connect {}` + "\n" + `  "start the MCP server docs\u009b: http://x"` + "\n"},
	} {
		got := run(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[{"agent_id":"a","pending":[{"request_id":"r-1",`+tt.request+`,"reason":"it runs","deadline":"later"}]}]}}`)
		}, nil, "approvals")
		want := "r-1 a: " + tt.want + "  it runs; without an answer denied at later\n"
		if diff := cmp.Diff(outcome{0, want, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// What a yes for the session would cover is shown where one is offered, with nothing in it that acts on the terminal;
// a child of an earlier version does not say it.
func TestApprovalsShowWhatIsForTheSession(t *testing.T) {
	for _, tt := range []struct{ request, want string }{
		{`"decisions":["allow_once","allow_session","deny"],"for_session":"read_file: all in /w and below"`, "  for the session: read_file: all in /w and below\n"},
		{`"decisions":["allow_once","allow_session","deny"],"for_session":"a\u001b[2K\nb"`, `  for the session: "a\x1b[2K\nb"` + "\n"},
		{`"decisions":["allow_once","allow_session","deny"]`, ""},
		{`"decisions":["allow_once","deny"],"for_session":"all"`, ""},
	} {
		got := run(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[{"agent_id":"a","pending":[{"request_id":"r-1","tool_name":"read_file","input":{"path":"/w/a"},`+tt.request+`,"reason":"it reads","deadline":"later"}]}]}}`)
		}, nil, "approvals")
		want := `r-1 a: read_file {"path":"/w/a"}` + "\n" + tt.want + "  it reads; without an answer denied at later\n"
		if diff := cmp.Diff(outcome{0, want, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// --limit 0 is all, and more than the server gives at once comes in pages.
func TestSessionsOfManyPages(t *testing.T) {
	const total = 2100
	serve := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		offset, limit := gjson.GetBytes(body, "params.offset").Uint(), gjson.GetBytes(body, "params.limit").Uint()
		var list []string
		for i := offset; i < min(offset+min(limit, 1000), total); i++ {
			list = append(list, fmt.Sprintf(`{"name":"s%d"}`, i))
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":{"total":%d,"offset":%d,"limit":%d,"sessions":[%s]}}`, total, offset, limit, strings.Join(list, ","))
	}
	for _, test := range []struct {
		offset, limit, first, last string
		count                      int64
	}{{"0", "0", "s0", "s2099", 2100}, {"50", "0", "s50", "s2099", 2050}, {"0", "2000", "s0", "s1999", 2000}, {"1", "1001", "s1", "s1001", 1001}, {"2100", "0", "", "", 0}} {
		got := run(t, serve, nil, "sessions", "--json", "--offset", test.offset, "--limit", test.limit)
		names := gjson.Get(got.stdout, "sessions.#.name").Array()
		if got.status != 0 || int64(len(names)) != test.count || test.count > 0 && (names[0].Str != test.first || names[test.count-1].Str != test.last) {
			t.Errorf("%+v: got %d, %d sessions, %s", test, got.status, len(names), got.stderr)
		}
	}
}

func TestMessagesTellsWhatIsCut(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"total":2,"offset":0,"messages":[{"role":"user","content":"hello"},`+
			`{"role":"assistant","content":"head","truncated":true,"size":1200000,"file":"/s/a.jsonl"}]}}`)
	}
	got := run(t, page, nil, "messages", "a")
	want := "user: hello\nassistant: head … (cut: the whole has 1200000 bytes and is in /s/a.jsonl)\n"
	if diff := cmp.Diff(outcome{0, want, ""}, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := run(t, page, nil, "--json", "messages", "a"); !strings.Contains(got.stdout, `"truncated":true,"size":1200000,"file":"/s/a.jsonl"`) {
		t.Errorf("--json leaves out that it is cut: %s", got.stdout)
	}
}

// A misspelt type is told: of it nothing would ever come.
func TestEventsNameUnknownTypes(t *testing.T) {
	end := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: end\ndata: {\"type\":\"end\",\"reason\":\"destroyed\"}\n\n")
	}
	for types, want := range map[string]string{
		"turn_start,gap,end,agent_removed": "",
		"turn_stert":                       `events of type "turn_stert" are not known to this version: did you mean turn_start?`,
		"turn_end,zzz":                     `events of type "zzz" are not known to this version`,
	} {
		if got := run(t, end, nil, "events", "a", "--types", types); !strings.Contains(got.stderr, want) || (want == "") != (got.stderr == "") || got.status != 0 {
			t.Errorf("%s: got %+v", types, got)
		}
	}
}

// A command line that cannot be meant is refused before anybody is asked, in
// words for people.
func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		say  string
	}{
		{[]string{"send", "a", "m", "--timeout", "-1s"}, "--timeout must be above 0, not -1s"},
		{[]string{"send", "a", "m", "--timeout", "0s"}, "--timeout must be above 0, not 0s"},
		{[]string{"send", "a", "m", "--timeout", "soon"}, `--timeout must be a duration as in 90s, not "soon"`},
		{[]string{"plan", "nosuch.json", "--timeout", "0s"}, "--timeout must be above 0, not 0s"},
		{[]string{"list", "--port", "x"}, `--port must be a whole number, not "x"`},
		{[]string{"list", "--json=maybe"}, `--json must be true or false, not "maybe"`},
		{[]string{"messages", "a", "--offset", "-1"}, `--offset must be a whole number from 0 on, not "-1"`},
		{[]string{"list", "--port", "99999999999999999999"}, `--port must be a whole number, not "99999999999999999999"`},
		{[]string{"list", "--port", "0"}, "--port must be from 1 to 65535, not 0"},
		{[]string{"list", "--port", "70000"}, "--port must be from 1 to 65535, not 70000"},
		{[]string{"detect", "--port", "-1"}, "--port must be from 1 to 65535, not -1"},
		{[]string{"load"}, "name a session, or say --last"},
		{[]string{"load", "w", "--last"}, "SESSION and --last exclude each other"},
		{[]string{"plan", "nosuch.json", "--size", "0"}, "--size must be from 1 to 16, not 0"},
		{[]string{"plan", "nosuch.json", "--size", "17"}, "--size must be from 1 to 16, not 17"},
		{[]string{"send", "a", "hi", "there"}, "usage: nexus-rpc send AGENT MESSAGE [FLAGS]: a message of several words is one in quotes"},
		{[]string{"--no-start", "list"}, "unknown flag: --no-start: flags of a verb stand behind it, as in "},
		{[]string{"list", "--nonsense"}, "unknown flag: --nonsense"},
		{[]string{"send", "a", "- item"}, "unknown shorthand flag: ' ' in - item: put -- before a message that begins with -"},
		{[]string{"send", "a", "m", "--timeot", "1s"}, "unknown flag: --timeot: did you mean --timeout?\n"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			got := run(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") }, nil, test.args...)
			if got.status != 2 || !strings.Contains(got.stderr, test.say) || strings.Contains(got.stderr, "strconv") {
				t.Errorf("got %d %q, want 2 and %q", got.status, got.stderr, test.say)
			}
		})
	}
}

// A text that was given empty would stand for one that was not given, and mean more: the
// server's own key, all agents, another home.
func TestGivenTexts(t *testing.T) {
	bad := map[string]string{"": "is empty", "\xff": "is not UTF-8"}
	for _, test := range []struct{ flag, line string }{
		{"--api-key", "list"},
		{"--home", "list"},
		{"--agent", "call update_context {}"},
		{"--run", "plan FILE"},
		{"--cwd", "plan FILE"},
		{"--agents", "plan FILE"},
		{"--after", "events a"},
		{"--types", "events"},
		{"--request-id", "send a m"},
		{"--when-busy", "send a m"},
		{"--agent", "keys create"},
		{"--name", "keys create"},
		{"--as", "load s"},
		{"--preset", "create"},
		{"--reason", "deny r"},
	} {
		for text, problem := range bad {
			checkRefused(t, test.flag+" "+problem, append(strings.Fields(test.line), test.flag, text)...)
		}
	}
	for line, name := range map[string]string{
		"": "VERB", "list": "an argument", "create": "AGENT", "cancel": "REQUEST_ID", "send a": "MESSAGE", "call m": "PARAMS",
		"clone a": "NAME", "keys": "an argument",
	} {
		for text, problem := range bad {
			checkRefused(t, name+" "+problem, append(strings.Fields(line), text)...)
		}
	}
	checkRefused(t, "AGENT is empty", "cancel", "", "r")
	checkRefused(t, "FILE is empty", "import", "a.Structured()", "")
	checkRefused(t, "--types has an empty element", "events", "--types", "a,,b")
	checkRefused(t, "--system is not UTF-8", "create", "--system", "a\xff")
	for _, args := range [][]string{{"create", "a", "--system", ""}, {"plan", "\xff"}} {
		got := run(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agent_id":"a"}}`)
		}, nil, args...)
		if got.status == 2 {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// checkRefused reports a command line that is not a usage error with this problem.
func checkRefused(t *testing.T, problem string, args ...string) {
	t.Helper()
	got := run(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") }, nil, args...)
	if want := (outcome{2, "", "nexus-rpc: " + problem + "\n"}); got != want {
		t.Errorf("%q: got %+v, want %+v", args, got, want)
	}
}

// A server that shuts down already does what shutdown asks for.
func TestShutdownOfADrainingServer(t *testing.T) {
	got := run(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(503)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Resource unavailable","data":{"type":"SERVER_DRAINING","details":"d","recovery_suggestions":["r"]}}}`)
	}, nil, "shutdown")
	if want := (outcome{0, "the server is shutting down\n", "nexus-rpc: the server is shutting down already\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A prompt on stdin is no message.
func TestPromptOnStdin(t *testing.T) {
	never := func(http.ResponseWriter, *http.Request) { t.Error("the server is asked") }
	for text, want := range map[string]string{"": "empty", " \n": "empty", "\xff": "not UTF-8", strings.Repeat("x", 1<<24): "longer than "} {
		var said strings.Builder
		got := runWith(t, never, cli.Options{Stdin: strings.NewReader(text), Stdout: io.Discard, Stderr: &said}, "prompt", "a", "-")
		if got.status != 1 || !strings.HasPrefix(said.String(), "nexus-rpc: the prompt on stdin is "+want) {
			t.Errorf("%.10q: %d, %s", text, got.status, said.String())
		}
	}
}

// What a machine answers that is cut off from the others of its cluster is told to be old.
func TestStaleAnswer(t *testing.T) {
	got := run(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Nexus-Stale", "2001-09-09T01:46:40Z")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"keys":[]}}`)
	}, nil, "keys", "--json")
	const cut = "nexus-rpc: the machine is cut off from the others of its cluster: this may be old, as of 2001-09-09T01:46:40Z\n"
	if want := (outcome{0, `{"keys":[]}` + "\n", cut}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	const others = "; but the other machines of the cluster are not reached, and one of them may have it"
	answers := func(since string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Nexus-Stale", since)
			body, _ := io.ReadAll(r.Body)
			method := gjson.GetBytes(body, "method").Str
			if method == "send" {
				w.WriteHeader(503)
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no","data":{"type":"NO_QUORUM","details":"cut off","recovery_suggestions":[]}}}`)
				return
			}
			_, _ = io.WriteString(w, map[string]string{
				"list_agents": `{"jsonrpc":"2.0","id":1,"result":{"agents":[]}}`, "list_sessions": `{"jsonrpc":"2.0","id":1,"result":{"sessions":[]}}`,
			}[method])
		}
	}
	const since = "2001-09-09T01:46:40Z"
	for _, tt := range []struct{ since, verb, want string }{
		{since, "status x", cut + "nexus-rpc: no agent x runs, and none is saved" + others + "\n"},
		{since, "allow x", cut + "nexus-rpc: no request x waits: it was answered, ended or never there" + others + "\n"},
		{"never", "status x", "nexus-rpc: the machine has not reached the others of its cluster since it started: it knows nothing of them yet\nnexus-rpc: no agent x runs, and none is saved" + others + "\n"},
		{since, "send x y", "nexus-rpc: no: cut off\n"},
	} {
		if got := run(t, answers(tt.since), nil, strings.Fields(tt.verb)...); got.status != 1 || got.stderr != tt.want {
			t.Errorf("%s: got %+v, want %q", tt.verb, got, tt.want)
		}
	}
	if got := run(t, answers(since), nil, "status", "x", "--json"); !strings.Contains(got.stderr, `"type":"NODE_UNREACHABLE"`) {
		t.Errorf("got %+v", got)
	}
}

// With --json, an error is a line of JSON on stderr, too.
func TestErrorsAsJSON(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(404)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Agent not found: a","data":{"type":"AGENT_NOT_FOUND","details":"d","recovery_suggestions":["r"]}}}`)
	}
	local := func(kind, message string) string {
		return `{"error":{"message":"` + message + `","data":{"type":"` + kind + `","details":"","recovery_suggestions":[]}}}` + "\n"
	}
	for line, want := range map[string]outcome{
		"messages a --json":      {1, "", `{"error":{"code":-32602,"message":"Agent not found: a","data":{"type":"AGENT_NOT_FOUND","details":"d","recovery_suggestions":["r"]}}}` + "\n"},
		"--json list --port 0":   {2, "", local("USAGE", "--port must be from 1 to 65535, not 0")},
		"list --jsn --json":      {2, "", local("USAGE", "unknown flag: --jsn: did you mean --json?")},
		"nosuch --json":          {2, "", local("USAGE", `unknown verb \"nosuch\": see nexus-rpc --help`)},
		"stop a --json --port 1": {3, "", local("NO_SERVER", "no server on port 1: start one with nexus serve 1")},
		"plan nosuch --json":     {1, "", local("FAILED", "read the plan: open nosuch: no such file or directory")},
		"messages a --json=off":  {2, "", "nexus-rpc: --json must be true or false, not \"off\"\n"},
	} {
		if got := run(t, refuse, nil, strings.Fields(line)...); got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", line, got, want)
		}
	}
}

// Every method can be called, where it belongs and with what is given.
func TestCall(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":{"path":%q,"asked":%s}}`, r.URL.Path, body)
	}
	for _, test := range []struct {
		args []string
		want outcome
	}{
		{
			[]string{"list_agents"},
			outcome{0, `{"path":"/rpc","asked":{"jsonrpc":"2.0","method":"list_agents","params":{},"id":1}}` + "\n", ""},
		},
		{
			[]string{"get_messages", `{"limit": 1}`, "--agent", "a"},
			outcome{0, `{"path":"/agent/a","asked":{"jsonrpc":"2.0","method":"get_messages","params":{"limit":1},"id":1}}` + "\n", ""},
		},
		{[]string{"newer", "-"}, outcome{2, "", "nexus-rpc: PARAMS are no JSON object\n"}},
		{[]string{"newer", "[1]"}, outcome{2, "", "nexus-rpc: PARAMS must be a JSON object, or - to read one from stdin, not \"[1]\"\n"}},
		{[]string{"send", "{}"}, outcome{2, "", "nexus-rpc: send is a method of an agent: say which by --agent\n"}},
	} {
		got := run(t, echo, nil, append([]string{"call"}, test.args...)...)
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("%q: -want +got:\n%s", test.args, diff)
		}
	}
	for _, m := range api.Methods { // a method needs no verb of its own
		args := []string{"call", m.Name}
		if m.Scope == api.Agent {
			args = append(args, "--agent", "a")
		}
		if got := run(t, echo, nil, args...); got.status != 0 || !strings.Contains(got.stdout, `"method":"`+m.Name+`"`) {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// What the server suggests in its own words is told in verbs and flags, but to who calls a
// method by its name.
func TestSuggestionsNameVerbs(t *testing.T) {
	plan := planFile(t)
	for _, test := range []struct {
		said string
		args []string
		want string
	}{
		{"See list_agents, or create the agent with create_agent.", []string{"send", "a", "x"}, "See SELF list, or create the agent with SELF create."},
		{"End it first, with destroy_agent.", []string{"delete", "a"}, "End it first, with SELF destroy."},
		{"See list_keys and revoke_key.", []string{"keys", "create"}, "See SELF keys and SELF keys revoke."},
		{"See pending of get_permissions.", []string{"load", "a"}, "See pending of SELF approvals."},
		{"Raise limits.turn_s by set_limits.", []string{"send", "a", "x"}, `Raise limits.turn_s by SELF call set_limits --agent a '{"limits":{"turn_s":N}}'.`},
		{"Raise limits.tokens with set_limits of agent boss.", []string{"send", "a", "x"}, `Raise limits.tokens with SELF call set_limits --agent boss '{"limits":{"tokens":N}}'.`},
		{"Raise limits.turn_s by set_limits.", []string{"list"}, `Raise limits.turn_s by SELF call set_limits --agent AGENT '{"limits":{"turn_s":N}}'.`},
		{"Change it (set_limits for limits).", []string{"create", "a"}, `Change it (SELF call set_limits --agent a '{"limits":{"NAME":N}}' for limits).`},
		{`Then set_cwd {"cwd":"/DIR"} of agent b.c moves it.`, []string{"send", "a", "x"}, `Then SELF cwd b.c /DIR moves it.`},
		{"Change it (set_model for model).", []string{"create", "a"}, "Change it (SELF model a MODEL for model)."},
		{"Widen it by set_permissions.", []string{"list"}, "Widen it by SELF permissions AGENT PRESET."},
		{`Then set_cwd {"cwd":"/DIR"} of agent b.c moves it.`, []string{"call", "send", "--agent", "a"}, `Then set_cwd {"cwd":"/DIR"} of agent b.c moves it.`},
		{"get_messages shows it.", []string{"send", "b", "x"}, "SELF messages b shows it."},
		{"get_messages shows it.", []string{"list"}, "SELF messages shows it."},
		{`Delete it (delete_session {"session_name":"b.c"}).`, []string{"create", "a"}, "Delete it (SELF delete b.c)."},
		{"Then call shutdown of agent b.c: it starts.", []string{"send", "a", "x"}, "Then run SELF stop b.c: it starts."},
		{"Then call shutdown of the agent: it starts.", []string{"send", "a", "x"}, "Then run SELF stop a: it starts."},
		{"Repeat it with on_failure.", []string{"plan", plan}, "Repeat it with --continue."},
		{`See create_agent with if_exists "use".`, []string{"rename", "a", "b"}, `See SELF create with --if-exists "use".`},
		{"Raise timeout_s.", []string{"send", "a", "x"}, "Raise --timeout."},
		{"With when_busy queue.", []string{"send", "a", "x"}, "With --when-busy queue."},
		{"Send it again with a new request_id: now.", []string{"send", "a", "x"}, "Send it again: now."},
		{"Send it again with a new request_id: now.", []string{"send", "a", "x", "--request-id", "r"}, "Send it again with a new --request-id: now."},
		{"Then the same send with request_id 1-a tells it.", []string{"send", "a", "x"}, "Then the same send with --request-id 1-a tells it."},
		{"Then the same run_plan with request_id 1-a tells it.", []string{"plan", plan}, "Then the same SELF plan with --run 1-a tells it."},
		{"Raise timeout_s, see list_agents.", []string{"call", "send", "--agent", "a"}, "Raise timeout_s, see list_agents."},
	} {
		var host atomic.Pointer[string] // requests on several connections may come
		got := run(t, func(w http.ResponseWriter, r *http.Request) {
			host.Store(&r.Host)
			said, _ := json.Marshal(test.said)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no","data":{"type":"X","recovery_suggestions":[%s]}}}`, said)
		}, nil, test.args...)
		_, port, err := net.SplitHostPort(*host.Load())
		if err != nil {
			t.Fatal(err)
		}
		want := "nexus-rpc: no\n  " + strings.ReplaceAll(test.want, "SELF", "nexus-rpc --port "+port) + "\n"
		if got.status != 1 || got.stderr != want {
			t.Errorf("%q: got %d, %q, want %q", test.args, got.status, got.stderr, want)
		}
	}
}
