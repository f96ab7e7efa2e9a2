package sandbox

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	terminalRows    = 40
	terminalColumns = 120
	// terminalsDir is where a view has terminals of its own, and no others.
	terminalsDir = "/dev/pts"
	// maxTerminals is how many a view has.
	maxTerminals = "32"
	// endOfFile is what a person types to end the input of a program (Ctrl-D).
	endOfFile = 4
)

// ownTerminals gives this mount namespace a file system of terminals that nobody else has, in
// the place of the system's.
func ownTerminals() error {
	fs, err := unix.Fsopen("devpts", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	for key, value := range map[string]string{"ptmxmode": "0666", "mode": "0600", "max": maxTerminals} {
		if err := unix.FsconfigSetString(fs, key, value); err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, terminalsDir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	// Where it is no link to the one among the terminals, it makes those of the system.
	at, _, err := openPlace("/dev/ptmx")
	if errors.Is(err, unix.ELOOP) || isNowhere(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(at)
	maker, err := unix.OpenTree(tree, "ptmx", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(maker)
	return unix.MoveMount(maker, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// openTerminal makes a terminal. It is not the controlling one of this process.
func openTerminal(maker string) (master, slave *os.File, err error) {
	m, err := unix.Open(maker, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: maker, Err: err}
	}
	master = os.NewFile(uintptr(m), "terminal")
	if err = unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err == nil {
		err = unix.IoctlSetWinsize(m, unix.TIOCSWINSZ, &unix.Winsize{Row: terminalRows, Col: terminalColumns})
	}
	if err == nil {
		slave, err = slaveOf(m)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// slaveOf is the program's side of a terminal.
func slaveOf(master int) (*os.File, error) {
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, "terminal"), nil
}

// useTerminal makes a terminal this process's controlling one, input and output, and has the
// reaper take its other side.
func useTerminal(v view, reports *os.File) error {
	maker := terminalsDir + "/ptmx"
	if v == noView {
		maker = "/dev/ptmx"
	}
	master, slave, err := openTerminal(maker)
	if err != nil {
		return err
	}
	defer master.Close()
	defer slave.Close()
	if err := pass(reports, startReport{Terminal: int(master.Fd())}); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(int(slave.Fd()), unix.TIOCSCTTY, 0); err != nil {
		return err
	}
	for fd := range 3 {
		if err := replace(int(slave.Fd()), fd); err != nil {
			return err
		}
	}
	return nil
}

// terminal is the reaper's side of its program's terminal. A nil terminal does nothing.
type terminal struct {
	in, out *os.File // what is typed, and where what is shown goes
	master  *os.File
	slave   *os.File      // keeps the terminal until all is read, also if no program has it open
	passed  chan struct{} // closed when all that was shown is passed on
}

// newTerminal keeps this process's input and output for a terminal that is opened later.
func newTerminal() (*terminal, error) {
	t := &terminal{passed: make(chan struct{})}
	for fd, to := range []**os.File{&t.in, &t.out} {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		*to = os.NewFile(uintptr(own), "terminal")
	}
	return t, nil
}

// open makes the terminal. The caller closes the program's side.
func (t *terminal) open() (slave *os.File, err error) {
	master, slave, err := openTerminal("/dev/ptmx")
	if err == nil {
		t.take(master)
	}
	return slave, err
}

// take is open for a terminal that the program itself has made.
func (t *terminal) take(master *os.File) {
	t.master = master
	t.slave, _ = slaveOf(int(master.Fd())) // without it, what is shown after nobody had it open is lost
}

// pass begins to pass what goes in and out.
func (t *terminal) pass() {
	if t == nil {
		return
	}
	go func() { // ends with the process
		_ = t.typeIn()
	}()
	go func() {
		defer close(t.passed)
		_, _ = io.Copy(t.out, t.master)      // to the end of the terminal, which is an error
		_, _ = io.Copy(io.Discard, t.master) // if nobody hears it, it must not hold up the program
	}()
}

// typeIn types the input, and that it ends.
func (t *terminal) typeIn() error {
	last := byte('\n')
	text := make([]byte, 4<<10)
	for {
		n, err := t.in.Read(text)
		if n > 0 {
			last = text[n-1]
			if _, err := t.master.Write(text[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			break
		}
	}
	end := []byte{endOfFile}
	if last != '\n' { // within a line the first one ends only that
		end = []byte{endOfFile, endOfFile}
	}
	_, err := t.master.Write(end)
	return err
}

// drain returns when all that was shown is passed on. No program has the terminal any more.
func (t *terminal) drain() {
	if t == nil {
		return
	}
	if t.slave != nil {
		t.slave.Close()
	}
	<-t.passed
}
