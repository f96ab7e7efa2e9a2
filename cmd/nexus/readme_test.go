package main_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runReadme runs a script in a folder that looks like a fresh clone after make
// build. NEXUS_PORT is a free port, because a test must not fight over a fixed one.
func runReadme(t *testing.T, script string, ownCurl bool) {
	dir := t.TempDir()
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
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NEXUS_HOME="+filepath.Join(dir, "home"), "NEXUS_PORT="+port, "NEXUS3_API_KEY=", "PATH="+tools+":"+os.Getenv("PATH"))
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
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nothing of it may be left
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("the README's commands: %v\n%s\n%s", err, out, said)
	}
	if strings.Contains(string(out), `"replayed":true`) {
		t.Errorf("what the README sends again is not carried out again:\n%s", out)
	}
	if strings.Contains(string(out), `}{"`) {
		t.Errorf("two of the answers are on one line:\n%s", out)
	}
	for _, want := range expected(script) {
		if !strings.Contains(string(out), want) {
			t.Errorf("the README's commands do not print %s:\n%s", want, out)
		}
	}
}

// runReadmeProgram runs a block of another language against a server, twice, as a
// newcomer does: prepare and run may say CLIENTS for the folder of the clients.
func runReadmeProgram(t *testing.T, block, name, prepare, run string) {
	clients, err := filepath.Abs("../../bridge/client")
	if err != nil {
		t.Fatal(err)
	}
	runReadme(t, "bin/nexus serve &\n"+
		"until curl -s http://127.0.0.1:$NEXUS_PORT/healthz; do sleep 0.2; done\n"+
		"cat > "+name+" <<'END'\n"+block+"END\n"+
		strings.ReplaceAll(prepare+"\n"+run+"\n"+run, "CLIENTS", "'"+clients+"'")+"\n"+
		"bin/nexus-rpc shutdown\nwait\n", true)
}

// expected is what a section must print for its text to be true.
func expected(script string) []string {
	switch {
	case strings.Contains(script, "from nexus_client"):
		return []string{"Your name is Alice.", "AGENT_NOT_FOUND", "create_agent"}
	case strings.Contains(script, "create_agent"):
		return []string{
			`{"jsonrpc":"2.0","id":1,"result":{"agent_id":"chat","url":"/agent/chat"}}`,
			"Your name is Alice.", `"cancelled":true`, `"available":`, "event: turn_start",
			`Agent not found: nonexistent`, `Method not found: unknown`, `Missing required parameter: content`,
			`Authorization header required`,
			`{"jsonrpc":"2.0","id":9,"result":{"success":true}}`, `"result":{"success":true,"agent_id":"chat"}`,
		}
	case strings.Contains(script, "nexus-rpc"):
		return []string{"Your name is Alice."}
	default:
		return []string{`{"type":"ready"`, `"text_delta"`, `"delta":"Alice."`, `"type":"agent_end"`, `"command":"prompt","ok":true`}
	}
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), nil
}

// headers collects -H flags.
type headers []string

func (h *headers) String() string     { return strings.Join(*h, ", ") }
func (h *headers) Set(s string) error { *h = append(*h, s); return nil }

// curl understands as much of curl as the README uses, with its exit statuses.
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
