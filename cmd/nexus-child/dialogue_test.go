package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/tools/txtar"

	"nexus.internal/fixtures"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/strict"
)

// dialogueTime bounds one dialogue.
const dialogueTime = 30 * time.Second

// Each file of fixtures/dialogues is replayed against the real program. Their
// README says what the lines mean. UPDATE=1 rewrites those that differ.
func TestDialogues(t *testing.T) {
	for _, file := range fixtures.Glob(t, "dialogues/*.txtar") {
		t.Run(strings.TrimSuffix(path.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive := txtar.Parse(fixtures.Read(t, file))
			d := newDialogue(t)
			for i, f := range archive.Files {
				if f.Name != "dialogue" {
					d.write(f.Name, f.Data)
					continue
				}
				d.play(strings.Split(strings.TrimSuffix(string(f.Data), "\n"), "\n"))
				archive.Files[i].Data = []byte(strings.Join(d.lines, "\n") + "\n")
			}
			if len(d.lines) == 0 {
				t.Fatal("it has no section named dialogue")
			}
			if d.changed && !t.Failed() {
				fixtures.Golden(t, file, txtar.Format(archive))
			}
		})
	}
}

// dialogue is one file that is being played.
type dialogue struct {
	*testing.T
	dir     string
	vars    vars
	update  bool
	lines   []string // as they are to be written with UPDATE=1
	changed bool
	at      int // index of the line that is being played

	p       *process       // what was started last
	started bool           // and has not ended yet
	passed  []gjson.Result // frames that may come before the next that is expected
	late    []string       // frames that may come in any order
}

func newDialogue(t *testing.T) *dialogue {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &dialogue{T: t, dir: dir, vars: vars{"dir": dir}, update: os.Getenv("UPDATE") == "1"}
	for _, sub := range []string{"work", "home"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *dialogue) write(name string, data []byte) {
	d.Helper()
	file := filepath.Join(d.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		d.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		d.Fatal(err)
	}
}

// play does what the lines say, one after another.
func (d *dialogue) play(lines []string) {
	d.lines = lines
	for d.at = range lines {
		verb, rest, _ := strings.Cut(lines[d.at], " ")
		switch verb {
		case "", "#":
		case "$":
			d.start(strings.Fields(d.vars.expand(rest)))
		case ">":
			d.takenAsPublished(d.vars.expand(rest))
			d.send(d.vars.expand(rest) + "\n")
		case ">raw":
			d.send(d.unescape(d.vars.expand(rest)))
		case ">end":
			d.p.stdin.Close()
		case ">signal":
			d.signal(rest)
		case "<":
			d.expect(rest)
		case "<line":
			if line := d.next(); line != d.vars.expand(rest) {
				d.failf("got  %.1000s", line)
			}
		case "<?":
			d.passed = append(d.passed, gjson.Parse(d.vars.expand(rest)))
		case "<*":
			d.expectLate(rest)
		case "<close":
			d.p.stdout.Close()
			d.p.lines = bufio.NewReader(strings.NewReader(""))
		case "<end":
			d.end(rest)
		default:
			d.failf("no such line")
		}
	}
	if d.started {
		d.failf("the child was not seen to end")
	}
}

func (d *dialogue) failf(format string, args ...any) {
	d.Helper()
	stderr := ""
	if d.started {
		_ = d.p.cmd.Process.Kill()
		_ = d.p.cmd.Wait() // so that its stderr is whole
		stderr = d.p.stderr.String()
	}
	d.Fatalf("line %d of the dialogue: %.500s\n%s\nstderr: %s", d.at+1, d.lines[d.at], fmt.Sprintf(format, args...), stderr)
}

// start runs a child; one at a time.
func (d *dialogue) start(args []string) {
	if d.started {
		d.failf("the one before it has not ended")
	}
	p := command(d.T, filepath.Join(d.dir, "home"), nil, args...)
	p.cmd.Dir = filepath.Join(d.dir, "work")
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		d.Fatal(err)
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		d.Fatal(err)
	}
	if err := p.stdout.(*os.File).SetReadDeadline(time.Now().Add(dialogueTime)); err != nil {
		d.Fatal(err)
	}
	p.lines = bufio.NewReader(p.stdout)
	if err := p.cmd.Start(); err != nil {
		d.Fatal(err)
	}
	d.p, d.started = p, true
}

func (d *dialogue) send(text string) {
	if _, err := io.WriteString(d.p.stdin, text); err != nil {
		d.failf("write: %v", err)
	}
}

var signals = map[string]os.Signal{
	"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL,
}

func (d *dialogue) signal(name string) {
	if err := d.p.cmd.Process.Signal(signals[name]); err != nil {
		d.failf("signal: %v", err)
	}
}

// read reads one line and checks what holds for every frame (SPEC §3.2). "" is
// the end.
func (d *dialogue) read() string {
	line, err := d.p.lines.ReadString('\n')
	if errors.Is(err, io.EOF) && line == "" {
		return ""
	}
	if err != nil {
		d.failf("read after %.300q: %v", line, err)
	}
	if len(line) > frame.MaxWritten || strict.Valid([]byte(line)) != nil || line[0] != '{' {
		d.failf("%d bytes that are no frame: %.300q", len(line), line)
	}
	d.wroteAsPublished(line)
	return line[:len(line)-1]
}

// next reads the first line that a <? before it does not take.
func (d *dialogue) next() string {
	for {
		line := d.read()
		if line == "" || !slices.ContainsFunc(d.passed, func(want gjson.Result) bool {
			return d.vars.match(want, gjson.Parse(line), "frame") == ""
		}) {
			d.passed = nil
			return line
		}
	}
}

// expect reads the frame that must come now.
func (d *dialogue) expect(text string) {
	line := d.next()
	if line == "" {
		d.failf("the child has ended")
	}
	want, got := gjson.Parse(d.vars.expand(text)), gjson.Parse(line)
	bound := maps.Clone(d.vars)
	differs := bound.match(want, got, "frame")
	switch {
	case differs == "":
		d.vars = bound
	case d.update:
		d.lines[d.at], d.changed = "< "+d.vars.rewrite(gjson.Parse(text), got, ""), true
	default:
		d.failf("%s differs, got\n%.3000s", differs, line)
	}
}

// expectLate collects lines that stand side by side; after the last it reads
// as many frames, which must be these in some order.
func (d *dialogue) expectLate(text string) {
	d.late = append(d.late, text)
	if d.at+1 < len(d.lines) && strings.HasPrefix(d.lines[d.at+1], "<* ") {
		return
	}
	for len(d.late) > 0 {
		line := d.next()
		i := slices.IndexFunc(d.late, func(text string) bool {
			return d.vars.match(gjson.Parse(d.vars.expand(text)), gjson.Parse(line), "frame") == ""
		})
		if i < 0 {
			d.failf("not among those that may come: %.3000s", line)
		}
		d.late = slices.Delete(d.late, i, i+1)
	}
}

// end waits for the end of stdout and of the child. The line has the exit
// status, or "killed", and what stderr must say.
func (d *dialogue) end(text string) {
	if line := d.next(); line != "" {
		d.failf("got %.1000s", line)
	}
	status, say, _ := strings.Cut(text, " ")
	got := strconv.Itoa(d.p.wait())
	if d.p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		got = "killed"
	}
	d.started = false
	if got != status || !strings.Contains(d.p.stderr.String(), say) {
		d.failf("exit status %s, stderr: %s", got, d.p.stderr.String())
	}
}

var escaped = regexp.MustCompile(`\\(x[0-9a-f]{2}|.)`)

// unescape makes the bytes of a >raw line: \n, \r, \t, \\ and \xHH.
func (d *dialogue) unescape(text string) string {
	return escaped.ReplaceAllStringFunc(text, func(found string) string {
		switch found[1] {
		case 'n':
			return "\n"
		case 'r':
			return "\r"
		case 't':
			return "\t"
		case '\\':
			return `\`
		case 'x':
			n, _ := strconv.ParseUint(found[2:], 16, 8) // two hexadecimal digits
			return string([]byte{byte(n)})
		}
		d.failf("no such escape: %s", found)
		return ""
	})
}
