package main_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// documented says what the sh blocks of each section of the pages must print.
// README's blocks are one session, with its program in Python. Expected in a program's name
// is what it prints.
var documented = map[string][]string{
	"README.md": {
		`{"jsonrpc":"2.0","id":1,"result":{"agent_id":"chat","url":"/agent/chat"`,
		"event: stream_data", "Your name is Alice.", `{"type":"ready"`, `"text_delta"`, `"type":"agent_end"`, `"command":"prompt","ok":true`,
	},
	"SPEC.md 6.0 An example session": {
		`{"jsonrpc":"2.0","id":1,"result":{"agent_id":"chat","url":"/agent/chat"`,
		"Your name is Alice.", `"cancelled":true`, `"available":`, "event: turn_start",
		`Agent not found: nonexistent`, `Method not found: unknown`, `Missing required parameter: content`,
		`Authorization header required`,
		`{"jsonrpc":"2.0","id":9,"result":{"success":true}}`, `"result":{"success":true,"agent_id":"chat"}`,
	},
	"SPEC.md 3.10 Flags":                               {`{"type":"ready"`, `"delta":"Alice."`, `"type":"agent_end"`, `"command":"prompt","ok":true`},
	"cmd/OPERATIONS.md 2.2 nexus-rpc":                  {"Your name is Alice.", "worker-2", "careful", "nxk_"},
	"cmd/OPERATIONS.md 2.10 Clients on other machines": {"Nice to meet you, Alice!", "Your name is Alice."},
	"cmd/OPERATIONS.md 2.9 Several machines":           {"Nice to meet you, Alice!", "Your name is Alice."},
	"child/AGENT.md 4.5 Permissions":                   {`hello`, `"stop_reason":"completed"`},
	"cmd/OPERATIONS.md python":                         {"Your name is Alice.", "completed", "from-python completed", "AGENT_NOT_FOUND", "create_agent"},
	"cmd/OPERATIONS.md go":                             {"Your name is Alice.", `"outcome":"completed"`},
	"cmd/OPERATIONS.md ts":                             {"Your name is Alice.", "completed", "from-typescript completed"},
}

// TestDocumentedCommands runs each block of commands and each program of README
// and the pages as it stands there, twice. A block that must not run is marked
// text. README's commands run with our own curl and with the real one, those of
// the pages with the real one where there is one.
func TestDocumentedCommands(t *testing.T) {
	_, err := exec.LookPath("curl")
	noCurl := err != nil
	found := make(map[string]bool)
	for _, page := range []string{
		"README.md", "CONTRIBUTING.md", "SPEC.md", "bridge/METHODS.md", "bridge/SECURITY.md", "child/AGENT.md", "cmd/OPERATIONS.md",
		"cmd/nexus-bench/FIGURES.md", "supervisor/SUPERVISION.md",
	} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sections(page, string(text)) {
			found[s.name] = true
			want, ok := documented[s.name]
			if !ok {
				t.Errorf("%s has commands, and there is no line for it in this test", s.name)
				continue
			}
			if page == "README.md" && strings.Contains(s.text, python) {
				want = append(want, "\nYour name is Alice.\n")
			}
			switch {
			case s.language != "sh":
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					runDocumentedProgram(t, s, want)
				})
			case page == "README.md" && !noCurl:
				t.Run(s.name+" with the real curl", func(t *testing.T) {
					t.Parallel()
					quiet(t, runDocumented(t, s.text+s.text, false, want))
				})
				fallthrough
			default:
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					said := runDocumented(t, s.text+s.text, page == "README.md" || noCurl, want)
					if page == "README.md" {
						quiet(t, said)
					}
				})
			}
		}
	}
	for name := range documented {
		if !found[name] {
			t.Errorf("there are no commands any more in %s", name)
		}
	}
}

// section is the joined sh blocks of a section, or one program.
type section struct{ name, language, text string }

var fence = regexp.MustCompile("(?ms)^(#{2,3}) ([^\n]+)$|^```([a-z]+)\n(.*?)^```$")

// python begins a program in a script.
const python = "python3 - <<'END'\n"

// sections returns what can be run of a page: the sh blocks of each section joined, and
// each program in python, ts or go. All blocks of README are one script, its program in Python
// where it stands, if it can be run here.
func sections(page, text string) (list []section) {
	name := page
	_, noPython := exec.LookPath("python3")
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		heading, language, block := m[2], m[3], m[4]
		if page == "README.md" && language == "python" {
			if noPython != nil {
				continue
			}
			language, block = "sh", python+block+"END\n"
		}
		switch {
		case heading != "":
			if page != "README.md" {
				name = page + " " + heading
			}
		case language == "python" || language == "ts" || language == "go":
			list = append(list, section{page + " " + language, language, block})
		case language == "sh":
			if i := slices.IndexFunc(list, func(s section) bool { return s.name == name }); i >= 0 {
				list[i].text += block
			} else {
				list = append(list, section{name, language, block})
			}
		}
	}
	return list
}

// runDocumented runs a script in a folder that looks like a fresh clone after make
// build. NEXUS_PORT is a free port, because a test must not fight over a fixed one. said is what
// it writes to stderr.
func runDocumented(t *testing.T, script string, ownCurl bool, want []string) (said string) {
	dir, clients := t.TempDir(), clientsDir(t)
	tools := filepath.Join(dir, "tools")
	if err := os.Mkdir(tools, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(programs, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	// make build was done already: the programs are those of this run.
	if err := os.WriteFile(filepath.Join(tools, "make"), []byte("#!/bin/sh\n[ \"$*\" = build ]\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if ownCurl {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(self, filepath.Join(tools, "curl")); err != nil {
			t.Fatal(err)
		}
	}
	port, err := freePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, named := range []string{":8766", ":8443"} { // of machines that are one, and for clients on others
		free, err := freePort("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		script = strings.ReplaceAll(script, named, ":"+free)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NEXUS_HOME="+filepath.Join(dir, "home"), "NEXUS_PORT="+port, "NEXUS3_API_KEY=", "PATH="+tools+":"+os.Getenv("PATH"),
		"PYTHONPATH="+filepath.Join(clients, "python"), "PYTHONDONTWRITEBYTECODE=1")
	// What the script starts in the background goes with it, also if it fails.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	t.Cleanup(func() { // a server that the script started and a failure left
		end := exec.Command(filepath.Join(programs, "nexus-rpc"), "--home", filepath.Join(dir, "home"), "shutdown")
		_ = end.Run()
	})
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.Output()
	text, _ := os.ReadFile(log.Name())
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nothing of it may be left
		t.Fatalf("the commands: %v\n%s\n%s", err, out, text)
	}
	if strings.Contains(string(out), `"replayed":true`) {
		t.Errorf("what is sent again is not carried out again:\n%s", out)
	}
	if strings.Contains(string(out), `}{"`) {
		t.Errorf("two of the answers are on one line:\n%s", out)
	}
	for _, text := range want {
		if strings.Count(string(out), text) < 2 { // the script does everything twice
			t.Errorf("the commands do not print %s twice:\n%s", text, out)
		}
	}
	return string(text)
}

// quiet checks that no log of a server gets into what else a person does at the same terminal.
func quiet(t *testing.T, said string) {
	t.Helper()
	if strings.Contains(said, `"level":`) {
		t.Errorf("the server writes its log to the terminal:\n%s", said)
	}
}

// runDocumentedProgram runs a program against a server, twice, as a newcomer does.
func runDocumentedProgram(t *testing.T, s section, want []string) {
	interpreter, file, build, run := "python3", "program.py", "", "python3 program.py\n"
	switch s.language {
	case "ts":
		interpreter, file, run = "node", "program.mjs", "node program.mjs\n"
	case "go":
		tree, err := filepath.Abs("../..")
		if err != nil {
			t.Fatal(err)
		}
		interpreter, file, run = "go", "main.go", "./program\n"
		build = "go mod init program\n" + strings.ReplaceAll(moduleCommands(t), "/path/to/nexus", tree) + "go build -mod=mod -o program .\n"
	}
	if _, err := exec.LookPath(interpreter); err != nil {
		t.Logf("not run, as there is no %s here", interpreter)
		return
	}
	runDocumented(t, "bin/nexus serve &\n"+
		"until curl -s http://127.0.0.1:$NEXUS_PORT/healthz; do sleep 0.2; done\n"+
		"mkdir node_modules; ln -s '"+clientsDir(t)+"/typescript' node_modules/nexus-client\n"+
		"cat > "+file+" <<'END'\n"+s.text+"END\n"+build+run+run+
		"bin/nexus-rpc shutdown\nwait\n", true, want)
}

// moduleCommands is how a Go program outside the source tree names it, as the page says.
func moduleCommands(t *testing.T) string {
	text, err := os.ReadFile("../../cmd/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("(?s)```text\n(go mod edit .*?)```").FindSubmatch(text)
	if commands == nil {
		t.Fatal("the page does not say any more how a Go program names the source tree")
	}
	return string(commands[1])
}

// clientsDir has the clients in Python and TypeScript.
func clientsDir(t *testing.T) string {
	dir, err := filepath.Abs("../../bridge/client")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// given has the ports that freePort has returned.
var given sync.Map

// freePort returns a port of a host at which nothing listens, to nobody twice, and below those that systems take for
// connections (from 32768 on): whoever frees a port of these for a moment may find it taken.
func freePort(host string) (string, error) {
	for range 1000 {
		port := strconv.Itoa(10000 + rand.IntN(20000))
		listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			continue
		}
		listener.Close()
		if _, twice := given.LoadOrStore(port, true); !twice {
			return port, nil
		}
	}
	return "", errors.New("no free port was found")
}

// headers collects -H flags.
type headers []string

func (h *headers) String() string     { return strings.Join(*h, ", ") }
func (h *headers) Set(s string) error { *h = append(*h, s); return nil }

// curl understands as much of curl as README and the pages use, with its exit statuses.
func curl(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("curl", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var head headers
	flags.Var(&head, "H", "header")
	method := flags.String("X", "", "method")
	data := flags.String("d", "", "body")
	maxTime := flags.Float64("max-time", 0, "seconds")
	flags.Bool("s", false, "silent")
	after := flags.String("w", "", "printed after the answer")
	flags.Bool("N", false, "unbuffered")
	var urls []string
	for rest := args; len(rest) > 0; { // curl takes its address anywhere
		if err := flags.Parse(rest); err != nil {
			return 2
		}
		if rest = flags.Args(); len(rest) > 0 {
			urls, rest = append(urls, rest[0]), rest[1:]
		}
	}
	if len(urls) != 1 {
		return 2
	}
	ctx := context.Background()
	if *maxTime > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*maxTime*float64(time.Second)))
		defer cancel()
	}
	if *method == "" {
		*method = http.MethodGet
		if *data != "" {
			*method = http.MethodPost
		}
	}
	req, err := http.NewRequestWithContext(ctx, *method, urls[0], strings.NewReader(*data))
	if err != nil {
		fmt.Fprintln(stderr, "curl:", err)
		return 3
	}
	if *data != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, line := range head {
		name, value, _ := strings.Cut(line, ":")
		req.Header.Set(name, strings.TrimSpace(value))
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return curlStatus(ctx, 7)
	}
	defer res.Body.Close()
	if _, err := io.Copy(stdout, res.Body); err != nil {
		return curlStatus(ctx, 18)
	}
	fmt.Fprint(stdout, strings.ReplaceAll(*after, `\n`, "\n"))
	return 0
}

func curlStatus(ctx context.Context, otherwise int) int {
	if ctx.Err() != nil {
		return 28
	}
	return otherwise
}
