package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// startConfined starts our executable anew, to confine itself and become the
// program. It tries the views one after the other, but no other than that which an
// earlier program had: another agent could have used up what it takes. The report
// names the first view that is worth to be tried next time.
func (o startRequest) startConfined() (*descendants, startReport) {
	var err error
	if o.Rules.Blocked, err = resolved(o.Rules.Blocked); err != nil {
		return nil, startReport{Error: "find what is blocked: " + err.Error()}
	}
	for next := o.View; ; o.View++ {
		f, r, err := o.startIn()
		switch {
		case err == nil:
			r.View, r.Had = next, next == o.View
			return f, r
		case o.Had:
			return nil, startReport{Error: "confine it as earlier programs were: " + err.Error()}
		case o.View == noView:
			return nil, startReport{Error: err.Error(), Refused: r.Refused}
		case next == o.View && !passing(err):
			next++
		}
	}
}

// passing reports whether a view that was refused may be had another time.
func passing(err error) bool {
	return slices.ContainsFunc([]error{
		unix.EAGAIN, unix.ENOMEM, unix.ENOSPC, unix.EUSERS, unix.EMFILE, unix.ENFILE,
	}, func(passing error) bool { return errors.Is(err, passing) })
}

// refusedError is that the system refuses something that a view takes.
type refusedError struct {
	what  string // with the reason
	errno syscall.Errno
}

func (e *refusedError) Error() string { return e.what }
func (e *refusedError) Unwrap() error { return e.errno }

// refused is what came of a call that makes a view. It is no [refusedError] if
// something has moved meanwhile: programs could bring that about, and so keep
// another from its view.
func refused(what string, err error) error {
	errno, ok := errors.AsType[syscall.Errno](err)
	switch {
	case err == nil:
		return nil
	case !ok, errno == unix.ENOENT, errno == unix.ENOTDIR, errno == unix.ELOOP:
		return fmt.Errorf("%s: %w", what, err)
	}
	return &refusedError{what + ": " + err.Error(), errno}
}

// startIn is startConfined with one view; the error is that it cannot be had.
func (o startRequest) startIn() (*descendants, startReport, error) {
	attr := programAttr()
	if err := o.View.attr(attr); err != nil {
		return nil, startReport{}, err
	}
	orderEnd, orders, err := os.Pipe()
	if err != nil {
		return nil, startReport{Error: err.Error()}, nil
	}
	defer orders.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		orderEnd.Close()
		return nil, startReport{Error: err.Error()}, nil
	}
	reports, reportEnd := os.NewFile(uintptr(pair[0]), "reports"), os.NewFile(uintptr(pair[1]), "reports")
	defer reports.Close()
	pid, err := syscall.ForkExec(executable(), []string{os.Args[0], enterArg}, &syscall.ProcAttr{
		Env: []string{}, Files: []uintptr{0, 1, 2, orderEnd.Fd(), reportEnd.Fd()}, Sys: attr,
	})
	orderEnd.Close()
	reportEnd.Close()
	if err != nil {
		return nil, startReport{}, fmt.Errorf("start it: %w", err)
	}
	_ = send(orders, o) // if nobody reads it, the report says why
	first, passed := outcome(pid, reports)
	if passed.terminal >= 0 {
		o.terminal.take(os.NewFile(uintptr(passed.terminal), "terminal"))
	}
	if first.Error == "" && first.NoView == "" {
		detach()
		if passed.listener >= 0 {
			d := &decider{listener: passed.listener, rules: o.Rules, temp: o.Temp}
			go d.serve() // it ends with the process
		}
		return &descendants{program: pid}, first, nil
	}
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if first.NoView != "" {
		return nil, startReport{}, &refusedError{first.NoView, syscall.Errno(first.Errno)}
	}
	return nil, first, nil
}

// How the reaper answers a report of a descriptor: it has it, or it needs to be sent
// it.
const (
	descriptorTaken  = 't'
	descriptorWanted = 'w'
)

// passed are descriptors that a process has passed on; -1 where there is none.
type passed struct{ listener, terminal int }

// outcome is what became of a process that was to become the program: its last
// report, and what it has passed on.
func outcome(pid int, reports *os.File) (last startReport, got passed) {
	last, got = startReport{Error: "it ended before it was the program"}, passed{-1, -1}
	r := bufio.NewReader(reports)
	for {
		var next startReport
		if err := receive(r, &next); err != nil {
			return last, got
		}
		at, to := next.Listener, &got.listener
		if next.Terminal != 0 {
			at, to = next.Terminal, &got.terminal
		}
		if at == 0 {
			last = next
			continue
		}
		var err error
		if *to, err = processFD(pid, at); err == nil {
			_, _ = reports.Write([]byte{descriptorTaken}) // if nobody reads it, the next report says why
			continue
		}
		_, _ = reports.Write([]byte{descriptorWanted})
		*to, r = sentDescriptor(reports)
	}
}

func processFD(pid, fd int) (int, error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(process)
	return unix.PidfdGetfd(process, fd, 0)
}

// sentDescriptor receives a descriptor, -1 if there is none with what comes next. The
// reader is for what follows.
func sentDescriptor(reports *os.File) (fd int, rest *bufio.Reader) {
	start, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, size, err := 0, 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, size, _, _, err = unix.Recvmsg(int(reports.Fd()), start, rights, unix.MSG_CMSG_CLOEXEC)
	}
	rest, fd = bufio.NewReader(io.MultiReader(bytes.NewReader(start[:max(n, 0)]), reports)), -1
	if err != nil {
		return fd, rest
	}
	if messages, err := unix.ParseSocketControlMessage(rights[:size]); err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			fd = fds[0]
		}
	}
	return fd, rest
}

// pass has the reaper take a descriptor that the report names. Sending it is the second choice,
// for where the reaper may not take it, as in some containers: how many descriptors
// may be on their way is counted for all processes of a user, so another process can
// prevent it.
func pass(reports *os.File, report startReport) error {
	if err := send(reports, report); err != nil {
		return err
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(reports, answer); err != nil || answer[0] == descriptorTaken {
		return err
	}
	fd := max(report.Listener, report.Terminal)
	return unix.Sendmsg(reportFD, []byte{' '}, unix.UnixRights(fd), nil, 0) // a space may stand before a report
}

// become confines this process and makes it the program. It returns only if that
// fails, with the exit status.
func become() int {
	keepDescriptors()
	var o startRequest
	if err := receive(bufio.NewReader(os.NewFile(orderFD, "orders")), &o); err != nil {
		return 2 // its giver is gone, or a person tries the argument out
	}
	reports := os.NewFile(reportFD, "reports")
	fail := func(r startReport) int {
		_ = send(reports, r) // the exit status says that something is wrong, too
		return 2
	}
	err := o.View.enter(o.Rules, o.Temp, o.Terminal)
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return fail(startReport{NoView: refused.what, Errno: int(refused.errno)})
	}
	if err != nil {
		return fail(startReport{Error: err.Error()})
	}
	if inside := ownNetwork(); o.Outside != "" && (inside == "" || inside == o.Outside) {
		return fail(startReport{Error: "it is not in a network of its own"})
	}
	if o.Terminal {
		if err := useTerminal(o.View, reports); err != nil {
			return fail(startReport{Error: "open a terminal: " + err.Error()})
		}
	}
	notes, listener, err := o.confine()
	if err != nil {
		return fail(startReport{Error: "confine it: " + err.Error()})
	}
	if listener >= 0 {
		if err := pass(reports, startReport{Listener: listener}); err != nil {
			return fail(startReport{Error: "confine it: pass on the listener: " + err.Error()})
		}
	}
	if err := o.Rules.Limits.apply(); err != nil {
		return fail(startReport{Error: err.Error()})
	}
	// The reaper may be gone by now, which the kernel tells no more.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil || os.Getppid() == 1 {
		return fail(startReport{Error: "the reaper is gone"})
	}
	if err := send(reports, startReport{Notes: notes}); err != nil {
		return 2
	}
	err = syscall.Exec(o.Path, o.Argv, o.Env)
	return fail(startReport{Error: (&os.PathError{Op: "exec", Path: o.Path, Err: err}).Error()})
}
