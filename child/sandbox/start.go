package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"nexus.internal/protocol/safefile"
)

const (
	// startPatience is how long a reaper has to start its program.
	startPatience = 10 * time.Second
	// endPatience is how long a reaper has to end once it was told to, or once
	// its program has exited. Then it is killed, and we do its work.
	endPatience = 2 * time.Second
	// drainGrace is how long output is waited for after the end, for the case
	// that a process beyond our reach holds it open.
	drainGrace = 100 * time.Millisecond
)

// Spec is what to start.
type Spec struct {
	// Argv is the program, looked up on its PATH unless it has a slash, and its
	// arguments.
	Argv []string
	// Dir is the working directory; "" means ours.
	Dir string
	// Env is what the program finds in its environment beside PATH, HOME, USER,
	// LOGNAME, LANG, LC_*, TZ, TERM and TMPDIR, as KEY=VALUE.
	Env []string
	// Rules are what it may do.
	Rules Rules
	// Stdin asks for a pipe; without it the program reads the end of file.
	Stdin bool
	// Terminal gives the program a terminal of its own, of 120 columns and 40 rows, as its
	// controlling terminal, input and output. What is written to Stdin is typed there, and its
	// end, or that there is none, is typed as an end of file. Linux alone has them.
	Terminal bool
	// Stderr gets what the program writes there, from a goroutine of its own
	// that a slow Write holds up; nil means that it goes where stdout goes.
	Stderr io.Writer
}

// Exit is how a program ended.
type Exit struct {
	Code int // exit status; -1 if a signal ended it
	// Signal is that signal, 0 if none did. A program whose end is not known
	// counts as killed.
	Signal syscall.Signal
}

// Process is a running or ended program with all that it started.
type Process struct {
	reaper     *os.Process
	control    *os.File // the reaper ends when it is closed
	stdin      *os.File // nil unless it was asked for
	stdout     *output
	doors      []door
	temp       string
	leftovers  *safefile.Remover // of temp; nil for none
	unconfined string
	notes      []string

	forget   func() bool // the context
	killOnce sync.Once
	overdue  *time.Timer      // kills the reaper
	held     atomic.Bool      // the reaper was stopped too often, and killed
	began    chan startReport // the first report; closed when there is none
	done     chan struct{}    // closed at last; exit is valid then
	exit     Exit
}

// views is what confined programs of this process can have.
var views struct {
	mu    sync.Mutex // guards the rest
	first view       // those before it are not to be had
	had   bool       // a program had it, and all have it from then on
}

// Start starts a program and returns when it runs. When ctx ends, it is killed
// as by Kill. An error wraps [ErrUnsupported] if the program must be confined
// and cannot be; on any error nothing of it is left.
func Start(ctx context.Context, s Spec) (*Process, error) {
	p, err := start(ctx, s)
	if err != nil {
		name := "program"
		if len(s.Argv) > 0 {
			name = s.Argv[0]
		}
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func start(ctx context.Context, s Spec) (*Process, error) {
	if err := check(ctx, s); err != nil {
		return nil, err
	}
	temp, err := makeTemp(s.Rules.Temp)
	if err != nil {
		return nil, err
	}
	if s.Rules.Home != "" {
		if err := safefile.Mkdir(s.Rules.Home); err != nil {
			discard(temp, s.Rules.Leftovers)
			return nil, err
		}
	}
	p, w, reports, stderr, err := launch(s, temp)
	if err != nil && w.lost() { // somebody has killed what was to start it
		p, w, reports, stderr, err = launch(s, temp)
	}
	if err != nil {
		discard(temp, s.Rules.Leftovers)
		return nil, err
	}
	p.forget = context.AfterFunc(ctx, p.Kill)
	go p.watch(reports, stderr, s.Stderr)
	o := startRequest{Argv: slices.Concat(s.Argv, w.arguments), Env: environment(s.Rules, temp, w.address, slices.Concat(w.env, s.Env)), Temp: temp, Rules: s.Rules.sparingKernel(), Terminal: s.Terminal}
	views.mu.Lock()
	o.View, o.Had = w.least(views.first), views.had
	views.mu.Unlock()
	o.Rules.Limits = o.Rules.Limits.orDefault()
	o.Outside = w.outside
	first, err := p.begin(o)
	switch {
	case err == nil && first.Error == "":
		if s.Rules.Confinement != Unconfined {
			views.mu.Lock()
			if !views.had && first.View >= views.first { // else a start that began later has told more
				views.first, views.had = first.View, first.Had
			}
			views.mu.Unlock()
		}
		p.unconfined, p.notes = first.Unconfined, first.Notes
		return p, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && first.Refused:
		err = fmt.Errorf("%w: %s", ErrUnsupported, first.Error)
	case err == nil:
		err = errors.New(first.Error)
	}
	p.Close()
	return nil, err
}

// way is how a program is started and reaches the network.
type way struct {
	spawner *spawner // starts its reaper; nil if we do
	outside string   // the name of the network in which it must not be; "" if it may
	doors   []door
	address string // of the gate, for the program; "" without one
	// env and arguments are what the service tells the program.
	env, arguments []string
}

// door is a listening socket of ours that a program reaches, and what serves it.
type door struct {
	socket *os.File
	to     Gate
}

// enter finds the way of a program with these rules.
func (r Rules) enter() (w way, err error) {
	listen := listenHere
	if r.Loopback != nil {
		if w.spawner, err = r.Loopback.enter(r.Gate != nil || r.Service != nil); w.spawner == nil {
			return w, err
		}
		w.outside, listen = ownNetwork(), w.spawner.gate
	}
	open := func(to Gate) (address string) {
		var socket *os.File
		if socket, address, err = listen(); err == nil {
			w.doors = append(w.doors, door{socket, to})
		}
		return address
	}
	if r.Gate != nil {
		w.address = open(r.Gate)
	}
	if r.Service != nil && err == nil {
		w.env, w.arguments = r.Service.Tell(open(r.Service))
	}
	if err != nil {
		w.close()
	}
	return w, err
}

// close closes the doors.
func (w way) close() {
	for _, d := range w.doors {
		d.socket.Close()
	}
}

// listenHere is a listening socket at the loopback of our own network, and its address.
func listenHere() (socket *os.File, address string, err error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	defer ln.Close()
	socket, err = ln.(*net.TCPListener).File() //nolint:forcetypeassert // it listens for TCP
	return socket, ln.Addr().String(), err
}

// serve serves what comes to the door until stop is called, which waits for its end.
func (d door) serve() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { d.to.Serve(ctx, d.socket) })
	return func() {
		cancel()
		serving.Wait()
	}
}

// begin gives the reaper its order and waits for its answer.
func (p *Process) begin(o startRequest) (startReport, error) {
	timer := time.AfterFunc(startPatience, p.Kill)
	defer timer.Stop()
	_ = p.control.SetWriteDeadline(time.Now().Add(startPatience)) // a pipe of ours has deadlines
	failed := send(p.control, o)
	if failed != nil {
		p.Kill()
	}
	first, ok := <-p.began
	switch {
	case failed == nil && ok:
		return first, nil
	case failed == nil && !timer.Stop():
		return startReport{}, fmt.Errorf("it has not started within %v", startPatience)
	case p.held.Load(): // a program runs before its reaper can report that
		return startReport{}, errors.New("the reaper was stopped again and again before it could report the start: killed with its program")
	case failed != nil:
		return startReport{}, fmt.Errorf("tell the reaper: %w", failed)
	}
	return startReport{}, errors.New("the reaper ended without a word")
}

// check says what is wrong with a spec before anything is made for it.
func check(ctx context.Context, s Spec) error {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return errors.New("no program")
	}
	if err := s.Rules.check(); err != nil {
		return err
	}
	if s.Rules.Confinement == Always {
		if err := Supported(); err != nil {
			return err
		}
	}
	if s.Dir != "" {
		info, err := os.Stat(s.Dir)
		if err == nil && !info.IsDir() {
			err = &os.PathError{Op: "chdir", Path: s.Dir, Err: syscall.ENOTDIR}
		}
		if err != nil {
			return fmt.Errorf("working directory: %w", err)
		}
	}
	return ctx.Err()
}

// makeTemp makes the program's own directory for temporary files.
func makeTemp(base string) (string, error) {
	if base != "" {
		if err := safefile.Mkdir(base); err != nil {
			return "", err
		}
		return os.MkdirTemp(base, "")
	}
	base, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return "", fmt.Errorf("find the directory for temporary files: %w", err)
	}
	return os.MkdirTemp(base, "nexus-tool-")
}

// discard removes a program's directory for temporary files.
func discard(dir string, leftovers *safefile.Remover) {
	if leftovers != nil {
		leftovers.Discard(dir)
		return
	}
	_ = safefile.RemoveBriefly(dir) // what is left goes with the directory above
}

// launch starts the reaper. stderr is nil if it goes the way of stdout.
func launch(s Spec, temp string) (p *Process, w way, reports, stderr *os.File, err error) {
	if w, err = s.Rules.enter(); err != nil {
		return nil, w, nil, nil, err
	}
	var ours, theirs []*os.File
	for _, d := range w.doors {
		ours = append(ours, d.socket)
	}
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, f := range ours {
				f.Close()
			}
		}
	}()
	pipe := func(toUs bool) (our, their *os.File) {
		r, w, failed := os.Pipe()
		if failed != nil {
			err = failed
			return nil, nil
		}
		if !toUs {
			r, w = w, r
		}
		ours, theirs = append(ours, r), append(theirs, w)
		return r, w
	}
	control, theirControl := pipe(false)
	reports, theirReports := pipe(true)
	stdout, theirStdout := pipe(true)
	theirStdin, failed := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if failed != nil {
		return nil, w, nil, nil, errors.Join(err, failed)
	}
	theirs = append(theirs, theirStdin)
	theirStderr := theirStdout
	p = &Process{
		control: control, temp: temp, leftovers: s.Rules.Leftovers, doors: w.doors,
		began: make(chan startReport, 1), done: make(chan struct{}),
	}
	if s.Stdin {
		p.stdin, theirStdin = pipe(false)
	}
	if s.Stderr != nil {
		stderr, theirStderr = pipe(true)
	}
	if err != nil {
		return nil, w, nil, nil, err
	}
	p.stdout = &output{file: stdout, done: p.done}
	files := []*os.File{theirStdin, theirStdout, theirStderr, theirControl, theirReports} // orderFD, reportFD
	p.reaper, err = reapers.start(func() (*os.Process, error) {
		if w.spawner != nil {
			return w.spawner.spawn(s.Dir, files)
		}
		return os.StartProcess(executable(), []string{os.Args[0], reaperArg}, &os.ProcAttr{
			Dir: s.Dir, Env: []string{}, Files: files, Sys: reaperAttr(),
		})
	})
	if err != nil {
		return nil, w, nil, nil, err
	}
	p.overdue = time.AfterFunc(endPatience, func() { _ = p.reaper.Kill() }) // or it is gone already
	p.overdue.Stop()                                                        // until Kill or the program's exit
	return p, w, reports, stderr, nil
}

// watch sees the program to its end.
func (p *Process) watch(reports, stderr *os.File, to io.Writer) {
	defer close(p.done)
	var pump sync.WaitGroup
	gone := make(chan struct{})
	if stderr != nil {
		pump.Go(func() {
			defer stderr.Close()
			io.Copy(to, &output{file: stderr, done: gone}) //nolint:errcheck // what cannot be written is lost
		})
	}
	var running sync.WaitGroup
	running.Go(func() { keepRunning(p.reaper.Pid, &p.held) })
	p.exit = p.follow(reports)
	reports.Close()
	p.overdue.Reset(endPatience)
	running.Wait() // its id is its own until it is reaped
	state, err := p.reaper.Wait()
	p.overdue.Stop()
	reapers.ended(p.reaper.Pid, err != nil || !state.Success())
	p.forget()
	p.Kill() // closes our end
	p.overdue.Stop()
	discard(p.temp, p.leftovers)
	close(gone)
	_ = p.stdout.file.SetReadDeadline(time.Now().Add(drainGrace)) // fails only if it was closed
	if stderr != nil {
		_ = stderr.SetReadDeadline(time.Now().Add(drainGrace))
	}
	pump.Wait()
}

// follow reads the reaper's reports up to the program's exit.
func (p *Process) follow(reports io.Reader) Exit {
	defer close(p.began)
	doors := p.doors
	defer func() {
		for _, d := range doors {
			d.socket.Close()
		}
	}()
	r := bufio.NewReader(reports)
	var first, last startReport
	if receive(r, &first) == nil {
		if first.Error == "" {
			for _, d := range doors {
				defer d.serve()()
			}
			doors = nil
		}
		p.began <- first
		if first.Error == "" && receive(r, &last) == nil && last.Exited {
			return Exit{Code: last.Code, Signal: syscall.Signal(last.Signal)}
		}
	}
	return Exit{Code: -1, Signal: syscall.SIGKILL}
}

// Kill ends the program and all that it started, and does not wait for that:
// nothing of it gets a chance to object. It may be called more than once.
func (p *Process) Kill() {
	p.killOnce.Do(func() {
		p.overdue.Reset(endPatience)
		p.control.Close()
	})
}

// Wait returns when the program has ended and nothing that it started is left.
// Its output may still be read.
func (p *Process) Wait() Exit {
	<-p.done
	return p.exit
}

// Close kills what still runs, waits for its end and gives up the output. It
// may be called more than once.
func (p *Process) Close() {
	p.Kill()
	<-p.done
	p.stdout.file.Close()
	if p.stdin != nil {
		p.stdin.Close()
	}
}

// Unconfined says why a program runs that the kernel does not hold to its
// rules; "" if it does, or if nobody asked for it.
func (p *Process) Unconfined() string { return p.unconfined }

// Notes are sentences about what the program cannot do that it might expect to.
func (p *Process) Notes() []string { return p.notes }

// Stdin is the program's input, or nil if it was not asked for. Its write
// deadline works.
func (p *Process) Stdin() *os.File { return p.stdin }

// Stdout is the program's output, for one goroutine. io.EOF means that all was
// read. It holds the program up if it is not read.
func (p *Process) Stdout() io.ReadCloser { return p.stdout }
