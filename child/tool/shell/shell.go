package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

const (
	// DefaultTimeout is how long a command may take that names no time.
	DefaultTimeout = 120 * time.Second
	// maxTimeout is the longest that one may name, in seconds.
	maxTimeout = 3600
	// maxOutput is how much output a result shows, in bytes, its beginning and its end.
	maxOutput = 32 << 10
	// maxStdin is how much text a call may give as input, in bytes.
	maxStdin = 256 << 10
	// longTime is from when on a result tells how long the command took.
	longTime = 5 * time.Second
)

// Options says how commands are run. The zero value of a field means its
// default.
type Options struct {
	// Dir is the working directory, absolute. It has no default.
	Dir string
	// Rules are what commands may do. Dir is not writable by itself.
	Rules sandbox.Rules
	// OutputDir is where output goes that is too long to show; it is made when
	// it is needed. "" keeps none.
	OutputDir string
	// Walls are sentences about what commands may do, for the description.
	Walls string
	// Hints tell of a job that has failed; nil for none.
	Hints Hints
}

// Hints says what the walls of a command with these rules have to do with the end of its
// output, as further lines; "" for nothing. It is safe for concurrent use.
type Hints interface {
	Hint(output string, rules sandbox.Rules) string
}

// Tool is the tool shell. Its calls name their time.
type Tool interface {
	tool.Scoped
	tool.Timed
}

// New returns the tool shell {command, timeout_s?, cwd?, stdin?, terminal?, description?}.
func New(o Options) Tool { return newShell(o) }

func newShell(o Options) *shell {
	s := &shell{options: o, program: "/bin/sh", maxOutput: maxOutput}
	for _, bash := range []string{"/bin/bash", "/usr/bin/bash"} {
		if info, err := os.Stat(bash); err == nil && info.Mode().IsRegular() {
			s.program = bash
			break
		}
	}
	return s
}

type shell struct {
	options   Options
	program   string // bash where it is, as what models write is mostly for it
	maxOutput int    // bytes
}

// input is what a call asks for. What is null is left to its default.
type input struct {
	Command     string   `json:"command"`
	TimeoutS    *float64 `json:"timeout_s,omitzero"`
	Cwd         *string  `json:"cwd,omitzero"`
	Stdin       *string  `json:"stdin,omitzero"`
	Terminal    *bool    `json:"terminal,omitzero"`
	Description *string  `json:"description,omitzero"` // for people who read along
}

func (s *shell) Spec() tool.Spec {
	return tool.Spec{
		Name: "shell",
		Description: strings.TrimSpace(fmt.Sprintf("Run a command with %s -c in the working directory. "+
			"Returns its output (stdout and stderr together) and its exit status. "+
			"Each call is a new shell: cd, variables and background processes do not last beyond it (job_start is for servers and what takes long). "+
			"Input is empty unless there is stdin, so use flags that ask no questions. Only the beginning and the end of long output is shown; "+
			"the result names the file that has all of it. Temporary files belong in $TMPDIR, which is removed after the call. %s",
			filepath.Base(s.program), s.options.Walls)),
		InputSchema: jsontext.Value(fmt.Sprintf(`{"type":"object","properties":{`+
			`"command":{"type":"string","description":"what the shell runs"},`+
			`"timeout_s":{"type":"number","exclusiveMinimum":0,"maximum":%d,"description":"seconds until it is killed, default %v"},`+
			`"cwd":{"type":"string","description":"a directory within the working directory to run it in"},`+
			`"stdin":{"type":"string","description":"what it reads as its input, at most 256 KiB"},`+
			`"terminal":{"type":"boolean","description":"give it a terminal, for programs that want one; stdin is typed there"},`+
			`"description":{"type":"string","description":"in a few words, what it is for"}},`+
			`"required":["command"],"additionalProperties":false}`, maxTimeout, DefaultTimeout.Seconds())),
	}
}

// command is an input with its defaults.
type command struct {
	command, cwd string
	stdin        string
	terminal     bool
	timeout      time.Duration
}

// parse reads the input of a call.
func (s *shell) parse(in jsontext.Value) (command, error) {
	var i input
	if err := strict.Unmarshal(in, &i, strict.RejectUnknown); err != nil {
		return command{}, err
	}
	c := command{command: i.Command, cwd: protocol.Value(i.Cwd), stdin: protocol.Value(i.Stdin), terminal: protocol.Value(i.Terminal), timeout: DefaultTimeout}
	if i.TimeoutS != nil {
		if *i.TimeoutS <= 0 || *i.TimeoutS > maxTimeout {
			problem := fmt.Sprintf("must be above 0 and at most %d, is %v", maxTimeout, *i.TimeoutS)
			return command{}, &strict.Error{Path: "timeout_s", Problem: problem}
		}
		c.timeout = time.Duration(*i.TimeoutS * float64(time.Second))
	}
	return c, c.check()
}

func (c command) check() error {
	switch {
	case strings.TrimSpace(c.command) == "":
		return &strict.Error{Path: "command", Problem: "is empty"}
	case strings.ContainsRune(c.command, 0):
		return &strict.Error{Path: "command", Problem: "has a NUL character, which no shell takes"}
	case len(c.stdin) > maxStdin:
		return &strict.Error{Path: "stdin", Problem: fmt.Sprintf("has %d bytes, more than %d: write it to a file", len(c.stdin), maxStdin)}
	}
	return nil
}

// Scope tells what a call would run.
func (s *shell) Scope(in jsontext.Value) (tool.Scope, error) {
	c, err := s.parse(in)
	if err != nil {
		return tool.Scope{}, err
	}
	return c.scope(), nil
}

func (c command) scope() tool.Scope {
	scope := tool.Scope{Action: protocol.ActionExecute, Command: c.command, Programs: Describe(c.command)}
	if c.cwd != "" {
		scope.Paths = []string{c.cwd}
	}
	line, _, more := strings.Cut(strings.TrimSpace(c.command), "\n")
	if more {
		line += " …"
	}
	scope.Summary = "run: " + line
	return scope
}

func (s *shell) TimeLimit(in jsontext.Value) time.Duration {
	c, err := s.parse(in)
	if err != nil {
		return 0
	}
	return c.timeout
}

// ErrPermissions is the cause of a context whose command is ended because it may do less now.
var ErrPermissions = errors.New("the permissions have changed")

const killedByChange = "[killed: the permissions have changed, and it could do more]"

func (s *shell) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	in, err := s.parse(c.Input)
	if err != nil {
		return tool.Result{}, err
	}
	timed, cancel := context.WithTimeout(ctx, in.timeout)
	defer cancel()
	began := time.Now()
	p, err := s.start(timed, in, in.stdin != "")
	if errors.Is(err, context.DeadlineExceeded) {
		return tool.Result{Text: tooLong(time.Since(began)), IsError: true}, nil
	}
	if err != nil && errors.Is(context.Cause(timed), ErrPermissions) {
		return tool.Result{Text: killedByChange, IsError: true}, nil
	}
	if err != nil {
		return tool.Result{}, err
	}
	defer giveInput(p, in.stdin)()
	defer p.Close()
	out := newCollector(s.maxOutput, s.options.OutputDir, c.Progress, c.Kept)
	defer out.close()
	_, failed := io.Copy(in.shown(out), p.Stdout())
	exit := p.Wait()
	took := time.Since(began)
	killed := timed.Err() != nil && exit.Signal == syscall.SIGKILL
	text := out.text()
	if failed != nil {
		text += fmt.Sprintf("[the rest of the output was lost: %v]\n", failed)
	}
	text += remarks(p, exit)
	switch {
	case killed && errors.Is(timed.Err(), context.DeadlineExceeded):
		return tool.Result{Text: text + tooLong(took), IsError: true}, nil
	case killed && errors.Is(context.Cause(timed), ErrPermissions):
		return tool.Result{Text: text + killedByChange, IsError: true}, nil
	case killed:
		return tool.Result{Text: text + "[killed: the turn was aborted]", IsError: true}, nil
	}
	return tool.Result{Text: text + status(exit, took), IsError: exit.Code != 0}, nil
}

// start starts a command. With input there is a pipe for it.
func (s *shell) start(ctx context.Context, c command, input bool) (*sandbox.Process, error) {
	dir, err := s.dir(c.cwd)
	if err != nil {
		return nil, err
	}
	spec := sandbox.Spec{Argv: []string{s.program, "-c", c.command}, Dir: dir, Rules: s.options.Rules, Stdin: input, Terminal: c.terminal}
	if c.terminal {
		spec.Env = terminalEnv
	}
	p, err := sandbox.Start(ctx, spec)
	if errors.Is(err, sandbox.ErrUnsupported) {
		err = fmt.Errorf("nothing can be run under these permissions: %w", err)
	}
	return p, err
}

// shown is where the output of a command goes that is to end up in w.
func (c command) shown(w io.Writer) io.Writer {
	if c.terminal {
		return &cleaner{to: w}
	}
	return w
}

// giveInput writes text to a program that has a pipe for it, and then ends its input; what it
// does not read is lost. wait returns when that is over: after the program's end.
func giveInput(p *sandbox.Process, text string) (wait func()) {
	stdin := p.Stdin()
	if stdin == nil {
		return func() {}
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		_, _ = io.WriteString(stdin, text)
		stdin.Close()
	})
	return writing.Wait
}

func tooLong(took time.Duration) string {
	return fmt.Sprintf("[killed after %v: it took too long]", took.Round(100*time.Millisecond))
}

// dir is where a call runs.
func (s *shell) dir(cwd string) (string, error) {
	if cwd == "" || cwd == "." {
		return s.options.Dir, nil
	}
	local, err := safefile.ExpandTilde(cwd)
	if err != nil {
		return "", fmt.Errorf("cwd %w", err)
	}
	if cwd = local; filepath.IsAbs(cwd) {
		relative, err := filepath.Rel(s.options.Dir, cwd)
		if err != nil {
			return "", fmt.Errorf("cwd %s: %w", cwd, err)
		}
		local = relative
	}
	root, err := safefile.OpenRoot(s.options.Dir)
	if err != nil {
		return "", fmt.Errorf("open working directory: %w", err)
	}
	info, err := root.Stat(local)
	_ = root.Close() // nothing was written
	if err != nil {
		return "", fmt.Errorf("cwd %s is not a directory within the working directory: %w", cwd, reason(err))
	}
	if !info.IsDir() {
		return "", fmt.Errorf("cwd %s is not a directory", cwd)
	}
	return filepath.Join(s.options.Dir, local), nil
}

func reason(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err
	}
	return err
}

// remarks is what a command's surroundings may have to do with how it ended.
func remarks(p *sandbox.Process, exit sandbox.Exit) string {
	var b strings.Builder
	if reason := p.Unconfined(); reason != "" {
		fmt.Fprintf(&b, "[this was not confined to the working directory: %s]\n", reason)
	}
	if exit.Code != 0 {
		for _, note := range p.Notes() {
			fmt.Fprintf(&b, "[%s]\n", note)
		}
	}
	return b.String()
}

// status is the last line of a result.
func status(exit sandbox.Exit, took time.Duration) string {
	how := fmt.Sprintf("exit status %d", exit.Code)
	if exit.Signal != 0 {
		how = fmt.Sprintf("ended by signal %d (%s)", int(exit.Signal), exit.Signal)
	}
	if took >= longTime {
		how += fmt.Sprintf(", after %v", took.Round(100*time.Millisecond))
	}
	return "[" + how + "]"
}
