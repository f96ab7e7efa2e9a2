package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge/homelock"
)

// person is somebody at a terminal, in which nexus runs.
type person struct {
	*testing.T
	home, cwd string
	pty       *os.File
	before    unix.Termios // the terminal, before the program has begun
	cmd       *exec.Cmd
	changed   chan struct{} // something was written
	over      chan struct{} // nothing more will be
	ended     chan error
	late      atomic.Int64 // how long the terminal takes to answer, a time.Duration
	answered  atomic.Bool  // it has answered the last question that bubbletea has at the begin

	mu     sync.Mutex // guards the rest, but for what the terminal answers
	screen *vt.Emulator
	raw    strings.Builder
}

// atTerminal starts nexus in a terminal of that many columns.
func atTerminal(t *testing.T, home, cwd string, columns int, args ...string) *person {
	t.Helper()
	return inTerminal(t, home, cwd, columns, append([]string{filepath.Join(programs, "nexus")}, args...)...)
}

// inTerminal starts a program there.
func inTerminal(t *testing.T, home, cwd string, columns int, argv ...string) *person {
	t.Helper()
	p := &person{
		T: t, home: home, cwd: cwd, screen: vt.NewEmulator(columns, 30),
		changed: make(chan struct{}, 1), over: make(chan struct{}), ended: make(chan error, 1),
	}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir = cwd
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "NEXUS_HOME=" + home, "TERM=xterm-256color", "GORACE=atexit_sleep_ms=0"}
	var tty *os.File
	var err error
	if p.pty, tty, err = pty.Open(); err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(p.pty, &pty.Winsize{Rows: 30, Cols: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	p.before = p.state()
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(p.cmd.Start(), tty.Close()); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the terminal
		defer close(p.over)
		buffer := make([]byte, 64<<10)
		for {
			n, err := p.pty.Read(buffer)
			p.mu.Lock()
			_, _ = p.screen.Write(buffer[:n])
			p.raw.Write(buffer[:n])
			p.mu.Unlock()
			select {
			case p.changed <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	go func() { // what the terminal answers; ends with it
		buffer := make([]byte, 4<<10)
		for {
			n, err := p.screen.Read(buffer)
			if err != nil {
				return
			}
			<-time.After(time.Duration(p.late.Load()))
			_, _ = p.pty.Write(buffer[:n])
			if bytes.Contains(buffer[:n], []byte("?2027;")) {
				p.answered.Store(true)
			}
		}
	}()
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.over
		p.pty.Close()
		if answers, ok := p.screen.InputPipe().(io.Closer); ok { // the emulator's own Close races with its Read
			_ = answers.Close()
		}
		endLeftOver(home)
	})
	return p
}

// text is all that was shown: what has scrolled away, and the screen.
func (p *person) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines []string
	for y := range p.screen.ScrollbackLen() {
		lines = append(lines, row(p.screen.Width(), func(x int) string {
			if cell := p.screen.ScrollbackCellAt(x, y); cell != nil {
				return cell.Content
			}
			return " "
		}))
	}
	return strings.TrimRight(strings.Join(append(lines, p.rows()...), "\n"), "\n")
}

// shown is what is on the screen.
func (p *person) shown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.rows(), "\n")
}

// rows are those of the screen. The caller holds mu.
func (p *person) rows() (lines []string) {
	for y := range p.screen.Height() {
		lines = append(lines, row(p.screen.Width(), func(x int) string {
			if cell := p.screen.CellAt(x, y); cell != nil {
				return cell.Content
			}
			return " "
		}))
	}
	return lines
}

// written is all that the program has written.
func (p *person) written() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raw.String()
}

func row(width int, cell func(x int) string) string {
	var b strings.Builder
	for x := range width {
		b.WriteString(cell(x))
	}
	return strings.TrimRight(b.String(), " ")
}

// sees waits until all of these are shown.
func (p *person) sees(wants ...string) {
	p.Helper()
	timeout := time.After(30 * time.Second)
	for {
		text, missing := p.text(), ""
		for _, want := range wants {
			if !strings.Contains(text, want) {
				missing = want
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-p.changed:
		case <-p.over:
			if text := p.text(); !strings.Contains(text, missing) {
				p.Fatalf("it ended without %q:\n%s", missing, text)
			}
		case <-timeout:
			p.Fatalf("%q is not shown:\n%s", missing, text)
		}
	}
}

// types types.
func (p *person) types(text string) {
	p.Helper()
	if _, err := p.pty.WriteString(text); err != nil {
		p.Fatal(err)
	}
}

// leaves waits for the end.
func (p *person) leaves() error {
	p.Helper()
	select {
	case err := <-p.ended:
		<-p.over
		return err
	case <-time.After(30 * time.Second):
		p.Fatalf("it does not end:\n%s", p.text())
		return nil
	}
}

// state is how the terminal treats what is typed and shown.
func (p *person) state() unix.Termios {
	p.Helper()
	state, err := unix.IoctlGetTermios(int(p.pty.Fd()), unix.TCGETS)
	if err != nil {
		p.Fatal(err)
	}
	return *state
}

// talker is a home for talks at terminals, with a port of its own.
func talker(t *testing.T) (begin func(columns int, args ...string) *person, home, cwd string) {
	t.Helper()
	port, err := freePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	home, cwd = filepath.Join(t.TempDir(), "home"), t.TempDir()
	return func(columns int, args ...string) *person {
		t.Helper()
		return atTerminal(t, home, cwd, columns, append([]string{"--port", port}, args...)...)
	}, home, cwd
}

// A person begins a session, talks, has a tool run after an approval, saves and leaves; and goes on
// from the lobby. The server ends with the terminal each time.
func TestATalkAtATerminal(t *testing.T) {
	t.Parallel()
	begin, home, cwd := talker(t)
	p := begin(80)
	p.sees(".1 · offline · trusted")
	p.types("My name is Alice\r")
	p.sees("you> My name is Alice", "Nice to meet you, Alice!")
	p.types("write a.txt: hello\r")
	p.sees("● write_file a.txt", "+hello", "wrote 5 bytes")
	p.types("run touch b\r")
	p.sees("waits for your approval", "touch b", "y once, s for this session, n no, r no with a reason")
	if _, err := os.Stat(filepath.Join(cwd, "b")); err == nil {
		t.Error("it ran before the answer")
	}
	p.types("y")
	p.sees("· allowed: ", "● shell touch b", "shell gave:")
	p.types("run touch c\r")
	p.sees("touch c", "y once")
	p.types("r")
	p.sees("the reason, for the model:")
	p.types("not that one\r")
	p.sees("· denied: ", "not that one")
	p.types("/save\r")
	p.sees("save it as:")
	p.types("alice\r")
	p.sees("saved as alice", "alice · offline")
	p.types("/destroy bob\r")
	p.sees("no agent bob")
	p.types("/quit\r")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
	if server, err := homelock.Find(home); err != nil || server.Runs {
		t.Errorf("the server: %+v, %v", server, err)
	}

	p = begin(100)
	p.sees("1) Resume: alice (just now, ", "2) Fresh session", "3) Choose from saved", "[1/2/3, q to leave]:")
	p.types("3")
	p.sees("1) alice (", "number or name, q to leave:")
	p.types("1\r")
	p.sees("you> My name is Alice", "alice · offline")
	p.types("What is my name?\r")
	p.sees("Your name is Alice")
	p.types("/whisper bob\r")
	p.sees("there is no agent bob: create it? y/n")
	p.types("y\r")
	p.sees("┌── whisper mode: bob", "bob · offline")
	p.types("What is my name?\r")
	p.sees("You have not told me your name")
	p.types("/over\r")
	p.sees("└── returned to alice", "alice · offline")
	p.types("sleep 600\r")
	p.sees("○ sleep", "calling sleep")
	p.types("echo and then\r")
	p.sees("queued: echo and then")
	p.types("\x1b")
	p.sees("· cancelled", "you> echo and then", "\nand then")
	p.types("\x03\x03")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
}

// The input: several lines, pasted ones, what was typed before, completion; and a message that goes
// before those that wait.
func TestTypingAtATerminal(t *testing.T) {
	t.Parallel()
	begin, _, cwd := talker(t)
	if err := os.WriteFile(filepath.Join(cwd, "notes-of-today.txt"), []byte("milk, bread"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(60, "--fresh")
	p.sees(".1 · offline")
	p.types("\x1b[200~echo pasted\nlines\x1b[201~")
	p.sees("> echo pasted", "  lines")
	p.types("\r")
	p.sees("you> echo pasted\n     lines", "\npasted\nlines")
	p.types("echo one\\\rmore\r")
	p.sees("\none\nmore")
	p.types("\x1b[A")
	p.sees("> echo one\n  more")
	p.types("\x1b[B")
	p.types("\x12past")
	p.sees(`search "past": echo pasted`)
	p.types("\x07")
	p.types("/perm\t")
	p.sees("> /permissions")
	p.types("sand\t")
	p.sees("> /permissions sandboxed")
	p.types("\r")
	p.sees("sandboxed at once")
	p.types("echo look @not\t")
	p.sees("@notes-of-today.txt")
	p.types("\r")
	p.sees("milk, bread")
	p.types("sleep 600\r")
	p.sees("calling sleep")
	p.types("echo it waits\r")
	p.sees("queued: echo it waits")
	p.types("echo it comes first\x13")
	p.sees("· cancelled", "\nit comes first", "\nit waits")
	text := p.text()
	if strings.Index(text, "\nit comes first") > strings.Index(text, "\nit waits") {
		t.Errorf("the order:\n%s", text)
	}
	if err := pty.Setsize(p.pty, &pty.Winsize{Rows: 20, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.screen.Resize(100, 20)
	p.mu.Unlock()
	p.types("write a long essay\r")
	p.sees("you> write a long essay")
	p.types("/cancel\r")
	p.types("/bogus\r")
	p.sees("no command /bogus")
	p.types("/fork branch\r")
	p.sees("branch goes on from here", "branch · offline")
	p.types("/new\r")
	p.sees("a new conversation begins")
	p.types("/quit\r")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
}

// A request that is longer than the screen is read in the scrollback, a cut result is shown whole on
// demand, and so are the events.
func TestLongCallsAtATerminal(t *testing.T) {
	t.Parallel()
	begin, _, _ := talker(t)
	p := begin(80, "--fresh")
	p.sees(".1 · offline")
	p.types("\x1b[200~run touch d; seq 1001 1040")
	for i := range 40 {
		p.types(fmt.Sprintf("\n# line %d", i))
	}
	p.types("\x1b[201~\r")
	p.sees("# line 0\n", "# line 39\n", "waits for your approval: .1: ", "y once")
	p.types("y")
	p.sees("· allowed: ", "1005", "… 36 lines more")
	p.types("\x0f")
	p.sees("\n  1006\n", "\n  1040\n")
	p.types("\x0f")
	p.sees("no call is folded", "of 128.0k tokens", "\n>\n.1 · offline") // the frame is drawn anew behind what is printed
	if text := p.text(); strings.Contains(text, "○") || strings.Count(text, "offline") != 1 {
		t.Errorf("what has changed is left behind:\n%s", text)
	}
	p.types("/events 3\r")
	p.sees(" agent_end {\"type\":\"agent_end\"", " turn_end {")
	p.types("/events 0\r")
	p.sees("usage: /events [N]")
	p.types("/quit\r")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
}

// What is typed before there is somebody to talk to is for whoever comes.
func TestTypedAhead(t *testing.T) {
	t.Parallel()
	begin, _, _ := talker(t)
	p := begin(80, "--fresh")
	p.types("echo too early\recho by far\r")
	p.sees("\ntoo early\n", "\nby far\n")
	p.types("/quit\r")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
}

// A talk that is suspended leaves the terminal to the shell until it goes on.
func TestASuspendedTerminal(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	p := inTerminal(t, filepath.Join(t.TempDir(), "home"), t.TempDir(), 200, bash, "--norc", "-i")
	p.types("PS1='shell \\#: '; " + filepath.Join(programs, "nexus") + " --port " + port + " --fresh\r")
	p.sees(".1 · offline")
	p.types("\x1a")
	p.sees("\n[1]+  Stopped", "\nshell 2:")
	p.types("stty -a | grep -o ' echo '; echo $((6*7))\r")
	p.sees("\n echo\n42")
	p.types("fg\recho it goes on\r")
	p.sees("\nit goes on\n", "of 128.0k tokens")
	job, err := unix.IoctlGetInt(int(p.pty.Fd()), unix.TIOCGPGRP)
	if err == nil {
		err = syscall.Kill(job, syscall.SIGTSTP)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.sees("\nshell 4:")
	p.types("fg\r/quit\r")
	p.sees("\nshell 5:")
	p.types("echo $((6*8))\r")
	p.sees("\n48")
	p.types("exit\r")
	if err := p.leaves(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, p.text())
	}
}

// However the talk ends, the terminal is as it was: it echoes, has its cursor, and takes no pasted text
// for marked.
func TestTheTerminalIsAsItWas(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(p *person){
		"quit": func(p *person) { p.types("/quit\r") }, "ctrl-d": func(p *person) { p.types("\x04") },
		"sigterm": func(p *person) { _ = p.cmd.Process.Signal(syscall.SIGTERM) },
		"sighup":  func(p *person) { _ = p.cmd.Process.Signal(syscall.SIGHUP) },
		"sigint":  func(p *person) { _ = p.cmd.Process.Signal(syscall.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			begin, home, _ := talker(t)
			p := begin(80, "--fresh")
			p.sees(".1 · offline")
			if p.state().Lflag&unix.ECHO != 0 {
				t.Error("what is typed is echoed by the terminal")
			}
			leave(p)
			_ = p.leaves() // after a signal the status says so
			if after := p.state(); after != p.before {
				t.Errorf("the terminal was %+v and is %+v", p.before, after)
			}
			p.mu.Lock()
			raw := p.raw.String()
			p.mu.Unlock()
			if hidden, shown := strings.LastIndex(raw, "\x1b[?25l"), strings.LastIndex(raw, "\x1b[?25h"); hidden > shown {
				t.Error("the cursor is hidden")
			}
			if on, off := strings.LastIndex(raw, "\x1b[?2004h"), strings.LastIndex(raw, "\x1b[?2004l"); on > off {
				t.Error("pasted text is marked")
			}
			if server, err := homelock.Find(home); err != nil || server.Runs {
				t.Errorf("the server: %+v, %v", server, err)
			}
		})
	}
}

// A talk that is left while its server starts, or as soon as that has started, leaves no server behind.
func TestLeavingEarly(t *testing.T) {
	t.Parallel()
	moments := map[string]func(p *person){
		"starting": func(p *person) {
			eventually(p.T, "no server is started", func() (string, error) {
				logs, err := filepath.Glob(filepath.Join(p.home, "logs", "server-*.log"))
				if err == nil && len(logs) == 0 {
					err = errors.New("it has no log")
				}
				return "", err
			})
		},
		"started": func(p *person) { p.sees("nexus: started a server") },
	}
	for moment, comes := range moments {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			t.Run(moment+"/"+sig.String(), func(t *testing.T) {
				t.Parallel()
				begin, home, _ := talker(t)
				p := begin(200, "--fresh")
				comes(p)
				for range 2 { // somebody insists
					_ = p.cmd.Process.Signal(sig)
				}
				_ = p.leaves() // the status is that of the end, or of the search that was given up
				if after := p.state(); after != p.before {
					t.Errorf("the terminal was %+v and is %+v", p.before, after)
				}
				eventually(t, "a server is left", func() (any, error) {
					files, err := filepath.Glob("/proc/[0-9]*/cmdline")
					for _, file := range files {
						line, _ := os.ReadFile(file) // or it has ended
						if args := string(line); strings.Contains(args, "\x00serve\x00") && strings.Contains(args, "\x00"+home+"\x00") {
							err = fmt.Errorf("%s\n%s", args, p.text())
						}
					}
					return nil, err
				})
				if text := p.text(); strings.Contains(text, "the server goes on") {
					t.Error(text)
				}
			})
		}
	}
}

// With NO_COLOR nothing is coloured, whatever its text is; without it problems are red.
func TestColoursAtATerminal(t *testing.T) {
	t.Parallel()
	env, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	for value, coloured := range map[string]bool{"": true, "1": false, "please": false} {
		t.Run("NO_COLOR="+value, func(t *testing.T) {
			t.Parallel()
			port, err := freePort("127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			p := inTerminal(t, filepath.Join(t.TempDir(), "home"), t.TempDir(), 80,
				env, "NO_COLOR="+value, filepath.Join(programs, "nexus"), "--port", port, "--fresh", "--preset", "trusted")
			p.sees(".1 · offline")
			p.types("/bogus\r")
			p.sees("! no command /bogus")
			p.types("run false\r")
			p.sees("✗ shell false", "of 128.0k tokens")
			p.types("/quit\r")
			if err := p.leaves(); err != nil {
				t.Errorf("it ended with %v:\n%s", err, p.text())
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			raw := p.raw.String()
			if colours := regexp.MustCompile(`\x1b\[([0-9;]*;)?[349][0-9][;m]|\x1b\]1[0-2];`).FindAllString(raw, -1); (len(colours) > 0) != coloured {
				t.Errorf("coloured by %q", colours)
			}
			if !strings.Contains(raw, "\x1b[1m") {
				t.Error("nothing is bold")
			}
		})
	}
}

// hostile is what models and tools write to act on terminals.
const hostile = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\u009b5n\x1bP+q\x1b\\ \u202egnp.exe\u202c \x1b]52;c;b3duZWQ=\x07 bell\x07 back\x08\x08 \x1b[?1049h done"

// What a tool put out acts on nothing.
func TestHostileOutputAtATerminal(t *testing.T) {
	t.Parallel()
	begin, _, cwd := talker(t)
	if err := os.WriteFile(filepath.Join(cwd, "hostile"), []byte(hostile), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(80, "--fresh")
	p.sees(".1 · offline")
	p.types("read hostile\r")
	p.sees("● read_file hostile", "done", `\u001b]0;owned\u0007`, `\u202egnp.exe`, `\u009b5n`)
	p.types("/quit\r")
	_ = p.leaves()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, bad := range []string{"\x1b]0;owned", "\x1b]52", "\u202e", "\x1b[?1049h", "\x1bP+q", "\u009b"} {
		if strings.Contains(p.raw.String(), bad) {
			t.Errorf("%q reached the terminal", bad)
		}
	}
}

// While the server is gone and asked again, the line of status does not say that the agent is at work. What was typed
// meanwhile is named at the end.
func TestTheServerIsGone(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"main","approvals":"ask"}`)
	p := atTerminal(t, s.home, s.cwd, 80, "--connect", s.url)
	p.sees("main · offline")
	p.types("sleep 600\r")
	p.sees("main · calling sleep")
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	p.sees("main · the server does not answer")
	p.types("echo first\recho second\rhalf typed")
	p.sees("! the server has ended: nexus --port ", " --resume starts one, and goes on",
		"nexus: perhaps not sent: echo first", "nexus: not sent: echo second", "nexus: not sent: half typed")
	if err := p.leaves(); err == nil {
		t.Error("it ended with status 0")
	}
}

// Two people at one agent see the same, its crash included, and the talk goes on.
func TestTwoTerminalsAtOneAgent(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"main","approvals":"ask"}`)
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	first := atTerminal(t, s.home, s.cwd, 80, "--connect", s.url)
	second := atTerminal(t, s.home, s.cwd, 120, "--port", at.Port(), "--connect", "--agent", "main", "--plain")
	first.sees("main · offline")
	second.types("echo from the second\r")
	first.sees("somebody> echo from the second", "\nfrom the second")
	second.sees("you> echo from the second")
	first.types("echo from the first\r")
	second.sees("somebody> echo from the first", "\nfrom the first")
	first.types("sleep 600\r")
	first.sees("calling sleep")
	if err := syscall.Kill(s.pid("main"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	first.sees("! crashed: ", "process 2")
	second.sees("! crashed: ")
	first.types("echo it goes on\r")
	first.sees("\nit goes on")
	first.types("/quit\r")
	if err := first.leaves(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	second.types("echo still there\r")
	second.sees("\nstill there")
}

// A person who comes to an agent that waits for an approval is asked for it, also with a key for this agent alone,
// until somebody has answered. A person at another agent is asked for nothing.
func TestComingToAnAgentThatWaits(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"main","approvals":"ask","default_cwd":%q}`, s.cwd))
	s.call("/", "create_agent", `{"agent_id":"other"}`)
	key := gjson.Get(s.call("/", "create_key", `{"scope":"agent","agent_id":"main"}`), "result.key").Str
	first := atTerminal(t, s.home, s.cwd, 80, "--connect", s.url)
	first.sees("main · offline")
	first.types("run touch b\r")
	first.sees("waits for your approval", "touch b", "y once")
	second := atTerminal(t, s.home, s.cwd, 80, "--connect="+s.url, "--agent", "main", "--api-key", key)
	lines := atTerminal(t, s.home, s.cwd, 80, "--connect="+s.url, "--agent", "main", "--plain")
	third := atTerminal(t, s.home, s.cwd, 80, "--connect="+s.url, "--agent", "other")
	for p, answers := range map[*person]string{second: "r no with a reason", lines: "n REASON tells the model why"} {
		p.sees("waits for your approval", "touch b", "y once, s for this session, n no, "+answers)
	}
	third.sees("other · offline")
	if text := third.text(); strings.Contains(text, "approval") {
		t.Errorf("somebody at another agent is asked:\n%s", text)
	}
	third.types("/agent main\r")
	third.sees("waits for your approval", "touch b", "y once")
	third.types("y")
	third.sees("· allowed: ", "● shell touch b")
	for _, p := range []*person{first, second} {
		p.sees("● shell touch b")
		eventually(t, "the request is there still", func() (any, error) {
			if text := p.text(); strings.Contains(text, "y once") {
				return nil, errors.New(text)
			}
			return nil, nil
		})
	}
	if _, err := os.Stat(filepath.Join(s.cwd, "b")); err != nil {
		t.Error(err)
	}
}
