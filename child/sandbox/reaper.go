package sandbox

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"nexus.internal/protocol/proctree"
	"nexus.internal/protocol/safefile"
)

// init is where a process that was started as a reaper goes another way, before
// main and before the packages that cost time: those that use net/http, in Go's
// order of initialization.
func init() {
	if len(os.Args) != 2 {
		return
	}
	// Not os.Exit: what a program wants done at its end is not the reaper's.
	switch os.Args[1] {
	case reaperArg:
		syscall.Exit(reaper())
	case spawnerArg:
		syscall.Exit(spawn())
	case launchArg:
		syscall.Exit(launchSpawner())
	case enterArg:
		syscall.Exit(become()) // on the first thread, which is where exec leaves a process
	}
}

// reaper runs the order that it is given and returns its exit status: 0 if all
// of the program is gone.
func reaper() int {
	parent := os.Getppid()
	keepDescriptors()
	control, reports := os.NewFile(orderFD, "orders"), os.NewFile(reportFD, "reports")
	orders := bufio.NewReader(control)
	var o startRequest
	if err := receive(orders, &o); err != nil {
		return 2 // its giver is gone, or a person tries the argument out
	}
	if o.Outside != "" {
		askForContinue() // a spawner could not ask for it
	}
	reapOrphans()
	_ = proctree.RaiseOOMScore(os.Getpid(), 1) // without /proc it stays that of the child
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)

	if o.Terminal {
		var err error
		if o.terminal, err = newTerminal(); err != nil {
			_ = send(reports, startReport{Error: "open a terminal: " + err.Error()})
			return 0
		}
	}
	f, first := o.start()
	_ = proctree.SetUndumpable() // not before: a user namespace is set up by way of /proc
	if err := send(reports, first); err != nil || f == nil {
		if f != nil {
			f.end()
			f.wait(func(syscall.WaitStatus) {})
		}
		o.removeTemp(parent)
		return 0
	}
	o.terminal.pass()
	go func() { // these end with the process
		_, _ = io.Copy(io.Discard, orders) // any end of it is the end
		f.end()
	}()
	go func() {
		<-signals
		f.end()
	}()
	f.wait(func(status syscall.WaitStatus) {
		last := startReport{Exited: true, Code: status.ExitStatus()}
		if status.Signaled() {
			last.Signal = int(status.Signal())
		}
		_ = send(reports, last) // if nobody reads it, we are about to be told to end
	})
	o.terminal.drain()
	o.removeTemp(parent)
	return 0
}

// removeTemp removes the program's directory for temporary files if the process that
// started us is dead: else that does, and need not wait for us.
func (o startRequest) removeTemp(parent int) {
	if os.Getppid() != parent {
		_ = safefile.RemoveAll(context.Background(), o.Temp) // what is left goes with the directory above
	}
}

// starter runs functions on the thread that started the program.
var starter = make(chan func())

// start starts the program. What confines it holds for the thread that it is
// started from, so that the reaper itself can still kill it. That thread lives
// as long as the process does: the kernel kills the program with it.
func (o startRequest) start() (*descendants, startReport) {
	type started struct {
		descendants *descendants
		report      startReport
	}
	done := make(chan started)
	go func() {
		runtime.LockOSThread()
		proctree.ExactTimers() // the child's are coarse, and programs may need others
		f, r := o.startHere()
		done <- started{f, r}
		for work := range starter { // for ever: nobody closes it
			work()
		}
	}()
	s := <-done
	return s.descendants, s.report
}

// startHere is start on the thread of the caller.
func (o startRequest) startHere() (*descendants, startReport) {
	var r startReport
	path, err := o.program()
	if err != nil {
		r.Error = err.Error()
		return nil, r
	}
	if o.Rules.Confinement != Unconfined {
		err := Supported()
		switch {
		case err == nil:
			o.Path = path
			return o.startConfined()
		case o.Rules.Confinement == Always:
			return nil, startReport{Error: err.Error(), Refused: true}
		}
		r.Unconfined = err.Error()
	}
	if err := o.Rules.Limits.apply(); err != nil {
		return nil, startReport{Error: err.Error()}
	}
	files, attr := []uintptr{0, 1, 2}, programAttr()
	if o.Terminal {
		slave, err := o.terminal.open()
		if err != nil {
			return nil, startReport{Error: "open a terminal: " + err.Error()}
		}
		defer slave.Close()
		files, attr.Setctty = []uintptr{slave.Fd(), slave.Fd(), slave.Fd()}, true
	}
	pid, err := syscall.ForkExec(path, o.Argv, &syscall.ProcAttr{Env: o.Env, Files: files, Sys: attr})
	if err != nil {
		return nil, startReport{Error: (&os.PathError{Op: "exec", Path: path, Err: err}).Error()}
	}
	detach()
	return &descendants{program: pid}, r
}

// program finds the program on the PATH that it will have.
func (o startRequest) program() (string, error) {
	for _, kv := range o.Env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			os.Setenv("PATH", value) //nolint:errcheck // a value from an environment
		}
	}
	path, err := exec.LookPath(o.Argv[0])
	if errors.Is(err, exec.ErrDot) {
		err = nil // it is what was asked for
	}
	return path, err
}

// detach closes our copies of the program's input and output, so that their ends
// are seen as it closes them.
func detach() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return // then its pipes end with us
	}
	defer null.Close()
	for fd := range 3 {
		_ = replace(int(null.Fd()), fd)
	}
}
