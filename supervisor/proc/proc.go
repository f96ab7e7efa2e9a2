package proc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/proctree"
	"nexus.internal/protocol/ratelimit"
)

const (
	// DefaultWriteTimeout is how long a process may leave its stdin unread
	// while we write (SPEC §5.4).
	DefaultWriteTimeout = 10 * time.Second
	// drainGrace is how long the pipes are read on after the process ended, for
	// the case that somebody outside its group holds them open.
	drainGrace = 500 * time.Millisecond
	// eofGrace is how long a process may live on with its stdout closed.
	eofGrace = 2 * time.Second
)

// Spec is what to start.
type Spec struct {
	// Argv is the program, looked up on PATH unless it has a slash, and its
	// arguments.
	Argv []string
	// Env is the whole environment as KEY=VALUE; nil means empty.
	Env []string
	// Dir is the working directory; "" means ours.
	Dir string
	// Log gets the lines of stderr; nil means nobody does.
	Log *zap.Logger
	// Graces are the patience of Stop.
	Graces Graces
	// WriteTimeout is the patience of Write; 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	// Limits bound the process and all that comes of it.
	Limits Limits
	// Shares bound it together with other processes; the first is the process's own.
	Shares []*Share
	// Guard reaches what leaves the process's group; nil means that nobody does.
	Guard *Guard
}

// Exit is how a process ended, with what it wrote to stderr since ForgetStderr, and Usage what it
// takes.
type (
	Exit  = proctree.Exit
	Usage = proctree.Usage
)

// Process is a running or ended process. Its methods are safe for concurrent
// use, but concurrent Writes may mix.
type Process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	graces Graces
	write  time.Duration // patience
	tail   *tail
	pidfd  *os.File // nil where the system has none
	tree   *tree
	limits Limits
	shares []*Share
	rate   ratelimit.Bucket // of stdout; owned by its reader
	watch  sync.WaitGroup   // the look at the tree's usage

	hurry     chan struct{} // closed when Stop is to go on with KILL
	hurryOnce sync.Once
	stopOnce  sync.Once
	dead      chan struct{} // closed when the process has ended
	pumped    chan struct{} // closed when stderr is drained
	done      chan struct{} // closed at last; exit is valid then
	exit      Exit

	mu     sync.Mutex // guards what follows
	reaped bool       // the group's id may belong to others
	usage  lastUsage
	limit  string // that was exceeded
}

// Start starts a process. The error is a *StartError; nothing is left of the
// process then.
func Start(s Spec) (*Process, error) {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return nil, &StartError{Why: "no program"}
	}
	if err := s.Limits.check(); err != nil {
		return nil, startError(s, err)
	}
	if err := CheckDir(s.Dir); err != nil {
		return nil, dirError(s, err)
	}
	p, err := begin(s)
	if err != nil {
		// It may have gone between the check and the start.
		if gone := CheckDir(s.Dir); gone != nil {
			return nil, dirError(s, gone)
		}
		return nil, startError(s, err)
	}
	go p.pump()
	p.whenDead()
	return p, nil
}

// begin starts a process that nobody reads or waits for yet.
func begin(s Spec) (_ *Process, err error) {
	var pipes [6]*os.File // ours and the child's end of stdin, stdout, stderr
	defer func() {
		for i, f := range pipes {
			if f != nil && (err != nil || i%2 == 1) {
				f.Close()
			}
		}
	}()
	for i := 0; i < len(pipes); i += 2 {
		if pipes[i], pipes[i+1], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	pipes[0], pipes[1] = pipes[1], pipes[0] // of stdin, ours is the writing end
	cmd := exec.Command(s.Argv[0], s.Argv[1:]...)
	cmd.Env = append([]string{}, s.Env...)
	cmd.Dir = s.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes[1], pipes[3], pipes[5]
	tree, pidfd, err := startTree(cmd, s.Guard, s.Limits)
	if err != nil {
		return nil, err
	}
	p := &Process{
		cmd: cmd, stdin: pipes[0], stdout: pipes[2], stderr: pipes[4], pidfd: pidfd, tree: tree,
		graces: s.Graces.orDefault(), write: s.WriteTimeout, tail: newTail(s.Log, cmd.Process.Pid),
		limits: s.Limits, shares: s.Shares,
		hurry: make(chan struct{}), dead: make(chan struct{}), pumped: make(chan struct{}), done: make(chan struct{}),
	}
	if p.write == 0 {
		p.write = DefaultWriteTimeout
	}
	for i, share := range p.shares {
		share.join(p, i == 0)
	}
	if p.sampled() {
		p.watch.Go(p.sample)
	}
	return p, nil
}

// CheckDir says why no process of this user can work in dir; nil for one that can, and for
// "". The error of a failed start names the program even if only its directory is at fault.
func CheckDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return &os.PathError{Op: "chdir", Path: dir, Err: syscall.ENOTDIR}
	}
	if err := unix.Access(dir, unix.X_OK); err != nil {
		return &os.PathError{Op: "chdir", Path: dir, Err: err}
	}
	return nil
}

// PID is the process id, which is its group's too.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Write writes to the process's stdin. It fails after Spec.WriteTimeout, wrapping
// os.ErrDeadlineExceeded; then, and after any other error, a part of b may
// have been written and the stream is of no more use.
func (p *Process) Write(b []byte) (int, error) {
	if err := p.stdin.SetWriteDeadline(time.Now().Add(p.write)); err != nil {
		return 0, err
	}
	n, err := p.stdin.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, fmt.Errorf("stdin not read in %s: %w", p.write, err)
	}
	if err == nil {
		_ = p.stdin.SetWriteDeadline(time.Time{}) // so that no timer is left behind
	}
	return n, err
}

// CloseStdin lets the process see the end of its stdin.
func (p *Process) CloseStdin() error { return p.stdin.Close() }

// Stdout is the process's output, for one goroutine. io.EOF means that the
// process is gone and all it wrote was read; any other error that its output
// ended while it lives.
func (p *Process) Stdout() io.Reader { return (*output)(p) }

// Discard gives up the rest of the output. It is for those who will not read
// Stdout to its end, and not while they read.
func (p *Process) Discard() { p.stdout.Close() }

// Done is closed once the process is gone and its stderr drained.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how the process ended. It waits for that.
func (p *Process) Exit() Exit {
	<-p.done
	return p.exit
}

// ForgetStderr leaves what the process has written to stderr so far, as far as that
// was read, out of Exit.Stderr: it has nothing to do with how the process ends.
func (p *Process) ForgetStderr() { p.tail.forget() }

// Reassign gives what the process writes to stderr from now on to another log, and
// leaves what it wrote so far out of Exit.Stderr.
func (p *Process) Reassign(log *zap.Logger) { p.tail.reassign(log.With(zap.Int("pid", p.PID()))) }

// Usage is what the process takes now, or took when it is gone.
func (p *Process) Usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped { // so its id is still its own
		return p.usage.of(p.cmd.Process.Pid)
	}
	select {
	case <-p.dead:
		return Usage{CPU: cpuOf(p.cmd.ProcessState)}
	default:
		return Usage{}
	}
}

// output is the reading side of stdout. It is a [frame.Source].
type output Process

// Read implements [io.Reader].
func (o *output) Read(b []byte) (int, error) { return o.read(o.stdout.Read(b)) }

// ReadInto implements [frame.Source].
func (o *output) ReadInto(room frame.Room) (int, error) { return o.read(readInto(o.stdout, room)) }

// read accounts for n bytes that were read of stdout.
func (o *output) read(n int, err error) (int, error) {
	now, rate := time.Now(), o.limits.outputRate()
	if o.rate.Take(now, rate, float64(n)); o.rate.Wait(now, rate, 0) > 0 {
		(*Process)(o).breach("output limit " + inBytes(o.limits.OutputBytesPerSecond) + "/s")
	}
	if n > 0 || err == nil {
		return n, nil
	}
	defer o.stdout.Close()
	patience := time.NewTimer(eofGrace)
	defer patience.Stop()
	select {
	case <-o.done:
		return 0, io.EOF
	case <-patience.C:
		return 0, errors.New("child closed its stdout")
	}
}

// wait sees the process, which is dead where the system tells that, to its end.
func (p *Process) wait() {
	defer close(p.done)
	dead := p.awaitExit()
	if dead {
		// Dead but not reaped: its id, and so its group's, is still its own.
		p.signal(syscall.SIGKILL)
		p.forgetGroup()
	}
	p.tree.reap(p.cmd, dead)
	if !dead {
		p.signal(syscall.SIGKILL)
		p.forgetGroup()
	}
	close(p.dead)
	p.watch.Wait()
	for _, share := range p.shares {
		share.leave(p, p.tree.spent(cpuOf(p.cmd.ProcessState)))
	}
	if left, err := p.tree.clear(); len(left) > 0 || err != nil {
		p.tail.logger().Error("processes that it left cannot be ended", zap.Ints("left", left), zap.Error(err))
	}
	p.stdin.Close()
	deadline := time.Now().Add(drainGrace)
	_ = p.stdout.SetReadDeadline(deadline) // fails only if it was closed, that is, read
	_ = p.stderr.SetReadDeadline(deadline)
	<-p.pumped
	p.exit = exitOf(p.cmd.ProcessState)
	p.exit.Stderr = p.tail.String()
	p.exit.Limit = p.breached()
}

// sample looks at what the tree takes, as long as it lives.
func (p *Process) sample() {
	tick := time.NewTicker(SampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.dead:
			return
		case <-tick.C:
		}
		if p.look(false) {
			return
		}
	}
}

// sampled reports whether the tree is to be looked at.
func (p *Process) sampled() bool { return p.limits.sampled() || len(p.shares) > 0 }

// Look compares what the tree of a process that has just started takes with its limits
// at once, and not only when SampleEvery has passed. It reports whether one is exceeded:
// then the process is killed.
func (p *Process) Look() (exceeded bool) { return p.look(true) }

func (p *Process) look(starting bool) (exceeded bool) {
	if !p.sampled() {
		return false
	}
	u := p.tree.usage(slices.ContainsFunc(p.shares, (*Share).shared))
	limit := p.limits.exceeded(u)
	for _, share := range p.shares {
		limit = cmp.Or(limit, share.note(p, u, starting))
	}
	if limit != "" {
		p.breach(limit)
	}
	return limit != ""
}

// breach kills the process for the sake of a limit.
func (p *Process) breach(limit string) {
	p.mu.Lock()
	if p.limit == "" && !p.reaped {
		p.limit = limit
	}
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
}

// breached names the limit that ended the process, whoever held it to it.
func (p *Process) breached() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	failed := p.exit.Code != 0
	switch limit := p.tree.breached(); {
	case p.limit != "":
		return p.limit
	case limit != "" && failed:
		return limit
	case p.limits.MemoryBytes > 0 && failed && p.tail.saidNoMemory():
		return p.limits.memory()
	}
	return ""
}

func (p *Process) forgetGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

// cpuOf is what a process took that has ended, with those that it waited for.
func cpuOf(state *os.ProcessState) time.Duration {
	if state == nil {
		return 0
	}
	return state.UserTime() + state.SystemTime()
}

func exitOf(state *os.ProcessState) Exit {
	if state == nil {
		return Exit{Code: -1}
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return Exit{Code: -1, Signal: status.Signal().String()}
	}
	return Exit{Code: state.ExitCode()}
}
