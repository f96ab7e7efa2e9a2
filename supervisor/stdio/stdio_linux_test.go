package stdio_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/proc"
	"nexus.internal/supervisor/stdio"
)

// The test binary plays the children that it starts.
func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv("NEXUS_TEST_SPARE"); ok && (len(os.Args) < 2 || os.Args[1] != "play") {
		playSpare()
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "play" {
		roles[os.Args[2]]()
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "nexus-stdio-")
	if err != nil {
		panic(err)
	}
	fakechild = filepath.Join(dir, "fakechild")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", fakechild, "nexus.internal/fixtures/fakechild")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build fakechild: %v\n%s", err, out))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("nexus.internal/supervisor/proc.spawnThread"), goleak.IgnoreAnyFunction("nexus.internal/supervisor/proc.(*exits).run"), goleak.Cleanup(func(status int) {
		os.RemoveAll(dir)
		os.Exit(status)
	}))
}

var roles = map[string]func(){
	"child":   func() { ready(protocol.Version); serve("") },
	"resumed": func() { ready(protocol.Version); serve("again: ") },
	"silent":  forever,
	"leaves": func() {
		fmt.Fprintln(os.Stderr, "unknown session nxk_abcdef")
		os.Exit(2)
	},
	"session-in-use":  func() { fmt.Fprintln(os.Stderr, "who has it"); os.Exit(protocol.ExitSessionInUse) },
	"session-damaged": func() { fmt.Fprintln(os.Stderr, "line 2"); os.Exit(protocol.ExitSessionDamaged) },
	"version2":        func() { ready(2); forever() },
	"unready":         func() { emit(protocol.Error{Message: "no"}); forever() },
	"garbled": func() {
		fmt.Println("Welcome to nexus sk-secret-key!")
		ready(protocol.Version)
		fmt.Println(`{"type":7}`)
		fmt.Println(`{"no":"type"}`)
		fmt.Println(`["type"]`)
		fmt.Println(`{"type":"a\nb"}`)
		fmt.Println("{\"type\":\"\xff\"}")
		fmt.Println(`{"type":"message_update","event":`)
		fmt.Println(strings.Repeat("[", 60_000) + strings.Repeat("]", 60_000))
		fmt.Println(strings.Repeat("x", 2<<20))
		fmt.Println(` {"x":1,"type":"weather"}`)
		serve("")
	},
	// late reads nothing until it is told to.
	"late": func() {
		wait := make(chan os.Signal, 1)
		signal.Notify(wait, syscall.SIGUSR1)
		ready(protocol.Version)
		<-wait
		emit(protocol.Error{Message: "now I read"})
		io.Copy(io.Discard, os.Stdin)
	},
}

func forever() {
	wait := make(chan os.Signal, 1)
	signal.Notify(wait, syscall.SIGUSR1)
	<-wait
}

func emit(e protocol.Event) {
	line, err := protocol.AppendEvent(nil, e)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

func ready(version uint32) {
	emit(protocol.Ready{SessionID: "s1", Model: "m1", ProtocolVersion: version})
}

// serve answers prompts until shutdown or the end of stdin. The prompt "wait"
// runs until it is killed.
func serve(prefix string) {
	lines := frame.NewReader(os.Stdin)
	for {
		line, err := lines.Next()
		if err != nil {
			return
		}
		command, err := protocol.DecodeCommand(line)
		if err != nil {
			panic(err)
		}
		switch c := command.(type) {
		case protocol.Prompt:
			emit(protocol.MessageUpdate{Event: protocol.TextDelta{Delta: prefix + c.Message}})
			switch c.Message {
			case "wait":
				forever()
			case "complain":
				fmt.Fprintln(os.Stderr, "a fault of this turn")
			case "die":
				os.Exit(3)
			}
			emit(protocol.AgentEnd{StopReason: protocol.StopCompleted, TurnID: c.ID})
			emit(protocol.Response{ID: c.Ident(), Command: c.Name(), Body: jsontext.Value(`{"ok":true}`)})
		case protocol.Shutdown:
			fmt.Fprintln(os.Stderr, "told to go")
			return
		default:
			emit(protocol.Response{ID: c.Ident(), Command: c.Name(), Body: jsontext.Value(`{"ok":true}`)})
		}
	}
}

// player is the command line of the children of these tests. The model of a Spec says what
// plays it at first, and its provider, if it has one, what does later: a role, a fault of
// fakechild, or a program.
type player struct{}

func (player) Command(s supervisor.Spec, again bool) (stdio.Command, error) {
	c := stdio.Command{Program: os.Args[0], Env: []string{"GORACE=atexit_sleep_ms=0"}, Become: protocol.Become{Dir: s.Cwd}}
	for name, value := range s.Env {
		c.Own = append(c.Own, name+"="+value)
	}
	plays := s.Model
	if again && s.Provider != "" {
		plays = s.Provider
	}
	switch {
	case strings.HasPrefix(plays, "--fault="):
		c.Program, c.Args = fakechild, []string{plays}
	case strings.HasPrefix(plays, "/"):
		c.Program = plays
	default:
		c.Args = []string{"play", plays}
	}
	return c, nil
}

func spec(role string) supervisor.Spec { return supervisor.Spec{ID: "alice", Model: role} }

func launch(t *testing.T, l *stdio.Launcher, role string) supervisor.Conn {
	t.Helper()
	conn, err := l.Launch(t.Context(), spec(role), false)
	if err != nil {
		t.Fatalf("Launch(%s): %v", role, err)
	}
	t.Cleanup(func() {
		conn.Stop(killed())
		for {
			if _, err := conn.Recv(); err != nil {
				return
			}
		}
	})
	return conn
}

func killed() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestLaunch(t *testing.T) {
	conn := launch(t, &stdio.Launcher{CommandLine: player{}}, "child")
	if r := conn.Ready(); r.SessionID != "s1" || r.Model != "m1" || conn.PID() == 0 {
		t.Errorf("ready = %+v, pid %d", r, conn.PID())
	}
	if err := conn.Send(protocol.Prompt{ID: "1", Message: "hello"}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 3 {
		f, err := conn.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, f.Type)
	}
	if want := []string{"message_update", "agent_end", "response"}; !slices.Equal(got, want) {
		t.Errorf("frames %v, want %v", got, want)
	}
	want := supervisor.Exit{Stderr: "told to go"}
	if exit := conn.Stop(t.Context()); exit != want || conn.Exit() != want {
		t.Errorf("exit = %+v, want %+v", exit, want)
	}
	<-conn.Done()
	if _, err := conn.Recv(); err != io.EOF {
		t.Errorf("Recv at the end = %v, want io.EOF", err)
	}
	if err := conn.Send(protocol.Ping{}); err == nil {
		t.Error("sent to a child that is gone")
	}
}

func TestLaunchFails(t *testing.T) {
	for _, c := range []struct {
		role, message string
		exit          *supervisor.Exit
	}{
		{
			"leaves", "child ended before it was ready (exit status 2): unknown session [redacted]",
			&supervisor.Exit{Code: 2, Stderr: "unknown session [redacted]"},
		},
		{
			"session-in-use", "another process has session alice open (exit status 75): who has it",
			&supervisor.Exit{Code: 75, Stderr: "who has it"},
		},
		{
			"session-damaged", "session alice cannot be read (exit status 65): line 2",
			&supervisor.Exit{Code: 65, Stderr: "line 2"},
		},
		{"version2", "child speaks protocol version 2, want 1 (signal: killed)", &supervisor.Exit{Code: -1, Signal: "killed"}},
		{"unready", `child's first frame is "error", want ready (signal: killed)`, &supervisor.Exit{Code: -1, Signal: "killed"}},
		{"silent", "too late (signal: killed)", &supervisor.Exit{Code: -1, Signal: "killed"}},
	} {
		t.Run(c.role, func(t *testing.T) {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if c.role == "silent" {
				ctx, cancel = context.WithTimeoutCause(ctx, 100*time.Millisecond, errors.New("too late"))
			}
			defer cancel()
			_, err := (&stdio.Launcher{CommandLine: player{}}).Launch(ctx, spec(c.role), false)
			e, ok := errors.AsType[*supervisor.StartError](err)
			if !ok || e.Error() != c.message || e.Exit == nil || *e.Exit != *c.exit {
				t.Errorf("error = %v, want %s", err, c.message)
			}
		})
	}
	t.Run("no program", func(t *testing.T) {
		_, err := (&stdio.Launcher{CommandLine: player{}}).Launch(t.Context(), supervisor.Spec{Model: "/no/such"}, false)
		if e, ok := errors.AsType[*supervisor.StartError](err); !ok || !errors.Is(err, os.ErrNotExist) || e.Exit != nil {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("given up before", func(t *testing.T) {
		if _, err := (&stdio.Launcher{CommandLine: player{}}).Launch(killed(), spec("child"), false); !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v", err)
		}
	})
}

// Lines that are no frames are logged, without keys, and never handed on.
func TestGarbage(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	conn := launch(t, &stdio.Launcher{CommandLine: player{}, Log: zap.New(core)}, "garbled")
	f, err := conn.Recv()
	if err != nil || f.Type != "weather" {
		t.Fatalf("Recv = %s, %v, want the one frame", f.Type, err)
	}
	if n := logs.Len(); n != 9 {
		t.Errorf("%d lines logged, want 9", n)
	}
	for _, entry := range logs.All() {
		line := entry.ContextMap()["line"].(string)
		if len(line) > 300 || strings.Contains(line, "sk-secret") {
			t.Errorf("logged %q", line)
		}
	}
	if err := conn.Send(protocol.Ping{ID: "1"}); err != nil {
		t.Error(err)
	}
	if f, err := conn.Recv(); err != nil || f.Type != "response" {
		t.Errorf("the stream did not go on: %s, %v", f.Type, err)
	}
}

// A command that is larger than a frame is refused and harms nothing; one that
// is not read in time breaks the stream.
func TestSend(t *testing.T) {
	conn := launch(t, &stdio.Launcher{CommandLine: player{}, WriteTimeout: 100 * time.Millisecond}, "late")
	for _, message := range []string{strings.Repeat("x", 1<<20), "\xff"} {
		if _, ok := errors.AsType[*supervisor.CommandError](conn.Send(protocol.Prompt{Message: message})); !ok {
			t.Error("want *CommandError")
		}
	}
	big := protocol.Prompt{Message: strings.Repeat("x", 1<<19)}
	if err := conn.Send(big); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Send = %v, want the deadline", err)
	}
	if err := syscall.Kill(conn.PID(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if f, err := conn.Recv(); err != nil || f.Type != "error" {
		t.Fatalf("Recv = %v, %v", f, err)
	}
	if err := conn.Send(protocol.Ping{}); err == nil {
		t.Error("a frame was sent behind a torn one")
	}
}

// The whole of it: real processes under the supervisor. One is killed in the
// middle of its turn; the other does not notice, and the first comes back with
// the arguments that resume.
func TestKillInTurn(t *testing.T) {
	s := supervisor.New(supervisor.Options{Launcher: &stdio.Launcher{CommandLine: player{}, Graces: proc.Graces{Shutdown: time.Second}}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	}()
	start := func(id string) *supervisor.Agent {
		t.Helper()
		own := spec("child")
		own.ID, own.Provider = id, "resumed"
		a, err := s.Start(ctx, own)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	prompt := func(a *supervisor.Agent, id, message string) *supervisor.Turn {
		t.Helper()
		turn, err := a.Prompt(ctx, protocol.Prompt{ID: id, Message: message}, supervisor.PromptOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return turn
	}
	alice, bob := start("alice"), start("bob")
	sub, err := alice.Subscribe(0)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	waiting, next := prompt(alice, "1", "wait"), prompt(alice, "2", "hello")
	for seen := false; !seen; { // until she speaks
		batch, err := sub.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		seen = slices.ContainsFunc(batch, func(e supervisor.Event) bool { return e.Type == "message_update" })
	}
	if err := syscall.Kill(alice.Info().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r, err := waiting.Wait(ctx)
	if e, ok := errors.AsType[*supervisor.CrashError](err); !ok || e.Exit.Signal != "killed" || r.Text != "wait" {
		t.Errorf("the killed turn: %+v", r)
	}
	if r, err := next.Wait(ctx); err != nil || r.Text != "again: hello" || r.Incarnation != 2 {
		t.Errorf("the next turn: %+v, %v", r, err)
	}
	if r, err := prompt(bob, "1", "hello").Wait(ctx); err != nil || r.Text != "hello" || r.Incarnation != 1 {
		t.Errorf("the other agent: %+v, %v", r, err)
	}
}

// A crash quotes what the process wrote in the turn that it ended, not what it
// complained of in an earlier one, which had nothing to do with it.
func TestLastWordsAreOfTheTurn(t *testing.T) {
	read := make(chan struct{}, 10)
	core, _ := observer.New(zap.InfoLevel)
	log := zap.New(core, zap.Hooks(func(zapcore.Entry) error { read <- struct{}{}; return nil }))
	c, err := (&stdio.Launcher{CommandLine: player{}, Log: log}).Launch(t.Context(), spec("child"), false)
	if err != nil {
		t.Fatal(err)
	}
	send := func(message string) {
		if err := c.Send(protocol.Prompt{ID: "1", Message: message}); err != nil {
			t.Error(err)
		}
	}
	send("complain")
	<-read
	send("die")
	for err == nil {
		_, err = c.Recv()
	}
	if exit := c.Exit(); exit != (supervisor.Exit{Code: 3}) {
		t.Errorf("exit = %+v", exit)
	}
}

// BenchmarkSend is one prompt and its answer through the supervisor and two
// pipes.
func BenchmarkSend(b *testing.B) {
	s := supervisor.New(supervisor.Options{Launcher: &stdio.Launcher{CommandLine: player{}}})
	ctx, cancel := context.WithCancel(b.Context())
	defer s.Run(ctx)
	defer cancel()
	a, err := s.Start(ctx, spec("child"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		turn, err := a.Prompt(ctx, protocol.Prompt{Message: "hello"}, supervisor.PromptOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := turn.Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzRoute(f *testing.F) {
	for _, line := range []string{
		`{"type":"message_update","event":{}}`, `{"type":"message_updat"}`, `{"type":"error"x}`, `[]`, ` {"a":1,"type":"x"}`,
		`{"type":"message_update"`, `{"type":"a","type":"b"}`,
		`{"type":"message_update","event":{"type":"text_delta","delta":"a\"}}"}}`, `{"type":"message_update","event":{"type":"text_delta","delta":"","delta":""}}`,
		`{"type":"turn\u005fend","turn_id":"x"}`, `{"type":"x","a":{"b":1,"\u0062":2}}`, `{"type":"message_update","event":{"type":"text_delta","delta":"\ud800"}}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(strings.Trim(string(line), " \t\r")) == 0 || slices.Contains(line, '\n') {
			return // the frame reader hands out no such line
		}
		frame, ok := stdio.Route(line)
		strict, err := protocol.NewFrame(line)
		if err == nil && ok && frame.Type != strict.Type {
			t.Errorf("type %q, strictly %q", frame.Type, strict.Type)
		}
		if ok && frame.Type == "" {
			t.Error("a frame without a type")
		}
		if ok && err != nil && !protocol.Decoded(frame.Type) {
			t.Errorf("passed on as %q what is malformed: %v", frame.Type, err)
		}
		if ok && protocol.Reserved(frame.Type) {
			t.Errorf("a child told %q", frame.Type)
		}
		if err == nil && !ok && !protocol.Reserved(strict.Type) && len(strict.Type) <= 64 && regexp.MustCompile(`^[a-z][a-z0-9_.]*$`).MatchString(strict.Type) {
			t.Errorf("refused a frame of type %q", strict.Type)
		}
	})
}

// manyNames are members of a frame.
var manyNames = func() string {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, `"member_%d":0,`, i)
	}
	return b.String()
}()

// A child tells its own events alone, and none that two readers could read in two ways,
// at any depth; a type of a newer child is passed on.
func TestAttackForgedEvents(t *testing.T) {
	const delta = `{"type":"message_update","event":{"type":"text_delta","delta":`
	for _, tt := range []struct {
		line string
		want string // the type; "" for no frame
	}{
		{delta + `"hello"}}`, "message_update"},
		{delta + `"a \"quoted\" \\"}}`, "message_update"},
		{delta + `"\u00e9"}}`, "message_update"},
		{`{"type":"message_update","event":{"type":"toolcall_input_delta","tool_id":"1","delta":"{"}}`, "message_update"},
		{`{"type":"subagent_start","subagent_id":1}`, "subagent_start"},
		{`{"type":"of_a_newer_child","members":{"a":1}}`, "of_a_newer_child"},
		{`{"type":"of.v2.child"}`, "of.v2.child"},
		{delta + `"a","delta":"b"}}`, ""},
		{delta + `"a"},"event":{"type":"text_delta","delta":"b"}}`, ""},
		{delta + `"a"},"type":"turn_end"}`, ""},
		{delta + `"a","d\u0065lta":"b"}}`, ""},
		{delta + `"\ud800"}}`, ""},
		{`{"type":"of_a_newer_child","a":{"b":[{"c":1,"c":2}]}}`, ""},
		{delta + `"a"},"Type":"turn_end"}`, ""},
		{`{"Type":"turn_end","type":"message_update","event":{"type":"text_delta","delta":"a"}}`, ""},
		{delta + `"a"},"EVENT":{"type":"text_delta","delta":"b"}}`, ""},
		{delta + `"a","Delta":"b"}}`, ""},
		{delta + `"a","\u0044elta":"b"}}`, ""},
		{`{"type":"x","event":{"type":"y","a":[{"B":1},"B"],"x":{"c":1,"C":"\\"}},"b":{"d":1,"D":2},"a":1}`, "x"},
		{`{"type":"x","a":"\\","event":{"b":["c",{}],"B":1}}`, ""},
		{`{"type":"x","a":1,"event":{"b":["c",{"d":{}}]},"A":1}`, ""},
		{`{"type":"x",` + manyNames + `"z":1,"y":2}`, "x"},
		{`{"type":"x",` + manyNames + `"z":1,"Z":2}`, ""},
		{`{"type":"of_a_newer_child","\u212aind":1,"kind":2}`, ""},                                                                      // the sign for kelvin
		{`{"type":"message_update","event":{"type":"toolcall_input","tool_id":"1","input":{"Path":"a","PATH":"b"}}}`, "message_update"}, // a model's own
		{`{"type":"turn_end","turn_id":"1","outcome":"completed"}`, ""},
		{`{"type":"turn\u005fend","turn_id":"1"}`, ""},
		{`{"type":"turn_end ","turn_id":"1"}`, ""},
		{`{"type":"Turn_End","turn_id":"1"}`, ""},
		{`{"type":"turn_end\u200b","turn_id":"1"}`, ""},
		{`{"type":"turn_start","turn_id":"1"}`, ""},
		{`{"type":"agent_state","state":"ready","incarnation":1}`, ""},
		{`{"type":"gap","from":1,"to":1000}`, ""},
		{`{"type":"end","reason":"removed"}`, ""},
		{`{"type":"agent_removed","last":1}`, ""},
		{`{"type":"open"}`, ""},
		{`{"type":"stream_end"}`, ""},
	} {
		if f, ok := stdio.Route([]byte(tt.line)); f.Type != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, want %q", tt.line, f.Type, tt.want)
		}
	}
	// Of what is acted on, the one who acts sees it.
	for _, line := range []string{
		`{"type":"response","id":"1","id":"2","command":"ping","ok":true}`, `{"type":"agent_end","usage":{},"stop_reason":"completed","type":"x"}`,
		`{"type":"agent_end","usage":{},"stop_reason":"completed","Stop_Reason":"x"}`,
	} {
		if f, ok := stdio.Route([]byte(line)); ok {
			if _, err := (protocol.Frame{Raw: f.Raw}).Decode(); err == nil {
				t.Errorf("%s is read", line)
			}
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	line := []byte(`{"type":"message_update","event":{"type":"text_delta","delta":"hello world, some words"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := stdio.Route(line); !ok {
			b.Fatal("no frame")
		}
	}
}
