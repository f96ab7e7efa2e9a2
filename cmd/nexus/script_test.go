package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/tidwall/gjson"
)

// The commands that the scripts have beyond those of testscript. Each waits on
// what happens, never for a time; patience bounds a wait that nothing ends.
const patience = 30 * time.Second

var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"serve":    cmdServe,
	"end":      cmdEnd,
	"post":     cmdPost,
	"get":      cmdGet,
	"becomes":  cmdBecomes,
	"until":    cmdUntil,
	"agent":    cmdAgent,
	"signal":   cmdSignal,
	"gone":     cmdGone,
	"mode":     cmdMode,
	"fill":     cmdFill,
	"same":     cmdSame,
	"waiting":  cmdWaiting,
	"exits":    cmdExits,
	"grab":     cmdGrab,
	"port":     cmdPort,
	"stranger": cmdStranger,
}

type serverKey struct{}

// server is the one that serve started; each script has one of its own.
type server struct {
	cmd    *exec.Cmd // nil while none runs
	stderr bytes.Buffer
}

// cmdServe is serve [FLAGS]: it starts nexus serve 0 and sets PORT, URL, KEY,
// KEYFILE and SERVER, its process.
func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(serverKey{}).(*server)
	if neg || s.cmd != nil {
		ts.Fatalf("serve starts one server; for a refusal use ! exec nexus serve")
	}
	s.cmd = exec.Command(filepath.Join(programs, "nexus"), append([]string{"serve", "0"}, args...)...)
	s.cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "NEXUS_HOME", "GORACE", "OPENAI_API_KEY", "CANARY"} {
		if value := ts.Getenv(name); value != "" {
			s.cmd.Env = append(s.cmd.Env, name+"="+value)
		}
	}
	s.stderr.Reset()
	s.cmd.Stderr = &s.stderr
	stdout, err := s.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	ts.Defer(func() {
		if s.cmd != nil { // the script failed before its end
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
			s.cmd = nil
			ts.Logf("server log:\n%s", s.stderr.String())
		}
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "nexus listening on "); ok {
			ts.Setenv("URL", url)
			ts.Setenv("PORT", url[strings.LastIndex(url, ":")+1:])
		}
		if path, ok := strings.CutPrefix(lines.Text(), "key file: "); ok {
			key, err := os.ReadFile(path)
			ts.Check(err)
			ts.Setenv("KEYFILE", path)
			ts.Setenv("KEY", strings.TrimSpace(string(key)))
			ts.Setenv("SERVER", strconv.Itoa(s.cmd.Process.Pid))
			return
		}
	}
	ts.Fatalf("nexus serve did not start")
}

// cmdEnd is end STATUS [SIGNAL]: it waits for the server to end with that exit status,
// or by a signal if STATUS is its name. Its log goes to the file server.log. SIGNAL is
// given again and again meanwhile, as one that comes with the first one does nothing.
func cmdEnd(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(serverKey{}).(*server)
	if neg || len(args) < 1 || len(args) > 2 || s.cmd == nil {
		ts.Fatalf("usage: end STATUS [SIGNAL], after serve")
	}
	if len(args) == 2 {
		if args[0] == "0" { // a second one ends the server at once, and by it
			ts.Fatalf("end 0 SIGNAL: the signal is given until the end, which asks more than once")
		}
		defer signalUntilEnd(s.cmd.Process, signals[args[1]])()
	}
	stuck := time.AfterFunc(patience, func() { _ = s.cmd.Process.Signal(syscall.SIGABRT) })
	err := s.cmd.Wait()
	stuck.Stop()
	state := s.cmd.ProcessState
	s.cmd = nil
	ts.Check(os.WriteFile(ts.MkAbs("server.log"), s.stderr.Bytes(), 0o600))
	got := strconv.Itoa(state.ExitCode())
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		got = status.Signal().String()
	}
	if got != args[0] {
		ts.Fatalf("the server ended with %s (%v), want %s\n%s", got, err, args[0], s.stderr.String())
	}
}

// cmdPost is post [-status N] [-key K] [-header NAME:VALUE] PATH BODY: one
// request, whose answer is the command's stdout. BODY may be @FILE. With -key ""
// no key is sent. The status must be N, by default 200.
func cmdPost(ts *testscript.TestScript, neg bool, args []string) {
	status, key, header := "200", ts.Getenv("KEY"), http.Header{}
	for len(args) > 2 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-status":
			status = args[1]
		case "-key":
			key = args[1]
		case "-header":
			name, value, _ := strings.Cut(args[1], ":")
			header.Set(name, value)
		default:
			ts.Fatalf("unknown flag %s", args[0])
		}
		args = args[2:]
	}
	if neg || len(args) != 2 {
		ts.Fatalf("usage: post [-status N] [-key K] [-header NAME:VALUE] PATH BODY")
	}
	body := args[1]
	if file, ok := strings.CutPrefix(body, "@"); ok {
		body = ts.ReadFile(file)
	}
	if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	got, answer, err := request(http.MethodPost, ts.Getenv("URL")+args[0], header, body)
	ts.Check(err)
	fmt.Fprintln(ts.Stdout(), answer)
	if strconv.Itoa(got) != status {
		ts.Fatalf("HTTP status %d, want %s: %s", got, status, answer)
	}
}

// cmdGet is get STATUS KEY PATH: one request, whose answer is the command's
// stdout. With KEY "" no key is sent.
func cmdGet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: get STATUS KEY PATH")
	}
	if got, answer := get(ts, args[1], args[2]); got != args[0] {
		ts.Fatalf("HTTP status %s, want %s: %s", got, args[0], answer)
	}
}

// cmdBecomes is becomes STATUS KEY PATH: get until the status is that. No event
// tells of it.
func cmdBecomes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: becomes STATUS KEY PATH")
	}
	for began := time.Now(); ; {
		got, answer := get(ts, args[1], args[2])
		if got == args[0] {
			return
		}
		if time.Since(began) > patience {
			ts.Fatalf("HTTP status %s, want %s: %s", got, args[0], answer)
		}
	}
}

func get(ts *testscript.TestScript, key, path string) (status, answer string) {
	header := http.Header{}
	if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	got, answer, err := request(http.MethodGet, ts.Getenv("URL")+path, header, "")
	ts.Check(err)
	fmt.Fprintln(ts.Stdout(), answer)
	return strconv.Itoa(got), answer
}

func request(method, url string, header http.Header, body string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header = header
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	return do(http.DefaultClient, req)
}

func do(client *http.Client, req *http.Request) (int, string, error) {
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, string(answer), err
}

// cmdUntil is until AGENT REGEXP: it reads the agent's event stream from its
// beginning until the data of an event matches.
func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: until AGENT REGEXP")
	}
	want, err := regexp.Compile(args[1])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ts.Getenv("URL")+"/agent/"+args[0]+"/events?after=0", nil)
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+ts.Getenv("KEY"))
	res, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer res.Body.Close()
	var seen strings.Builder
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 2<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if ok && want.MatchString(data) {
			return
		}
		fmt.Fprintln(&seen, lines.Text())
	}
	ts.Fatalf("no event matches %s (%v):\n%s", args[1], lines.Err(), seen.String())
}

// cmdAgent is agent ID MEMBER NAME: it sets NAME to a member of the agent's
// entry in list_agents.
func cmdAgent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: agent ID MEMBER NAME")
	}
	ts.Setenv(args[2], entry(ts, args[0]).Get(args[1]).String())
}

// entry is the agent's entry in list_agents.
func entry(ts *testscript.TestScript, id string) gjson.Result {
	_, answer, err := request(http.MethodPost, ts.Getenv("URL")+"/",
		http.Header{"Authorization": {"Bearer " + ts.Getenv("KEY")}}, `{"jsonrpc":"2.0","id":1,"method":"list_agents"}`)
	ts.Check(err)
	for _, agent := range gjson.Get(answer, "result.agents").Array() {
		if agent.Get("agent_id").Str == id {
			return agent
		}
	}
	ts.Fatalf("no agent %s: %s", id, answer)
	return gjson.Result{}
}

// cmdWaiting is waiting AGENT N: it asks until N sends wait in the agent's
// queue. No event tells of that, since nothing has happened to the agent yet.
func cmdWaiting(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waiting AGENT N")
	}
	for began := time.Now(); ; {
		got := entry(ts, args[0]).Get("queued").String()
		if got == args[1] {
			return
		}
		if time.Since(began) > patience {
			ts.Fatalf("%s sends wait for %s, want %s", got, args[0], args[1])
		}
	}
}

// cmdGrab is grab NAME REGEXP: it sets NAME to what the group of the regular
// expression matches in the last command's stdout.
func cmdGrab(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: grab NAME REGEXP")
	}
	match := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(match) != 2 {
		ts.Fatalf("no match for %s", args[1])
	}
	ts.Setenv(args[0], match[1])
}

var signals = map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}

// cmdSignal is signal NAME PID.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal NAME PID")
	}
	number, ok := signals[args[0]]
	if !ok {
		ts.Fatalf("unknown signal %s", args[0])
	}
	pid, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(syscall.Kill(pid, number))
}

// cmdGone is gone PID…: it waits until no such process is left. The processes
// are those of this test's own programs, so that a number is not soon used
// again.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: gone PID…")
	}
	for _, arg := range args {
		pid, err := strconv.Atoi(arg)
		ts.Check(err)
		if err := awaitEnd(pid); err != nil {
			ts.Fatalf("process %d: %v", pid, err)
		}
	}
}

// cmdMode is mode OCTAL PATH…: the permissions of each are just these.
func cmdMode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: mode OCTAL PATH…")
	}
	for _, path := range args[1:] {
		info, err := os.Stat(ts.MkAbs(path))
		ts.Check(err)
		if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[0] {
			ts.Fatalf("mode of %s is %s, want %s", path, got, args[0])
		}
	}
}

// cmdFill is fill FILE N: it writes N bytes x between the two lines of FILE, in
// place of the newline.
func cmdFill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fill FILE N")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	before, after, ok := strings.Cut(ts.ReadFile(args[0]), "\n")
	if !ok {
		ts.Fatalf("%s has one line", args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(before+strings.Repeat("x", n)+after), 0o600))
}

// cmdSame is same GOT WANT.
func cmdSame(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: same GOT WANT")
	}
	if args[0] != args[1] {
		ts.Fatalf("got %q, want %q", args[0], args[1])
	}
}

// cmdPort is port NAME: it sets NAME to a port that is free now.
func cmdPort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: port NAME")
	}
	port, err := freePort("127.0.0.1")
	ts.Check(err)
	ts.Setenv(args[0], port)
}

// cmdStranger is stranger NAME: a listener that speaks no HTTP takes a port, and
// NAME is set to it.
func cmdStranger(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stranger NAME")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 not what you think\r\n"))
			conn.Close()
		}
	})
	ts.Defer(func() {
		listener.Close()
		serving.Wait()
	})
	ts.Setenv(args[0], strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
}

// cmdExits is exits STATUS PROGRAM ARGS…: exec that wants just this exit status.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM ARGS…")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = strconv.Itoa(exit.ExitCode())
	}
	if got != args[0] {
		ts.Fatalf("exit status %s, want %s", got, args[0])
	}
}
