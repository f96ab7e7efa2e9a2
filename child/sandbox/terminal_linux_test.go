package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/sandbox/sandboxtest"
)

// openPTY makes a terminal by a maker of such.
func openPTY(maker string) (master int, name string, err error) {
	master, err = unix.Open(maker, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, "", err
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	return master, fmt.Sprintf("/dev/pts/%d", number), errors.Join(err, unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0))
}

// push types text at a terminal by the ioctl for that.
func push(terminal int, text string) error {
	for i := range len(text) {
		c := text[i]
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(terminal), unix.TIOCSTI, uintptr(unsafe.Pointer(&c))); errno != 0 {
			return errno
		}
	}
	return nil
}

// atTerminal is a program that tells what terminal it has, and tries to reach the one that its
// argument names.
func atTerminal(args []string) {
	tell := func(what string, err error) {
		if err == nil {
			fmt.Println(what)
		} else {
			fmt.Println("no " + what)
		}
	}
	size, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ)
	if err == nil {
		fmt.Println(size.Col, size.Row)
	}
	tell("terminal", err)
	tty, err := unix.Open("/dev/tty", unix.O_RDWR, 0)
	tell("/dev/tty", err)
	if err == nil {
		sid, err := unix.IoctlGetInt(tty, unix.TIOCGSID)
		tell(fmt.Sprint("session of its own: ", sid == unix.Getpid()), err)
	}
	if other, err := unix.Open(args[0], unix.O_RDWR|unix.O_NOCTTY, 0); err == nil {
		_, _ = unix.Write(other, []byte("intruder"))
		_ = push(other, "intruder\n")
		_ = unix.IoctlSetInt(other, unix.TIOCSCTTY, 1)
	}
	if master, name, err := openPTY("/dev/ptmx"); err == nil {
		slave, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY, 0)
		tell("another of its own", err)
		unix.Close(slave)
		unix.Close(master)
	}
	if args[1] == "bare" || tty < 0 {
		return
	}
	names, err := os.ReadDir("/dev/pts")
	list := []string{}
	for _, name := range names {
		list = append(list, name.Name())
	}
	tell("lists "+strings.Join(list, " "), err)
	if _, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0); err == nil {
		fmt.Println("makes terminals")
	}
}

// terminals runs programs with and without a terminal, at a terminal of its own, and says what
// came of that one.
func terminals(args []string) {
	work := filepath.Join(args[0], "work")
	switch args[1] {
	case "bare":
		must(sandboxtest.WithoutNamespaces())
	case "copies":
		must(sandboxtest.WithoutCopies())
	}
	if _, err := unix.Setsid(); err != nil {
		panic(err)
	}
	var master int
	var name string
	for range 3 { // the first ones of a view have other names
		var err error
		master, name, err = openPTY("/dev/ptmx")
		must(err)
	}
	slave, err := unix.Open(name, unix.O_RDWR, 0) // it is the controlling one from now on
	must(err)
	self, err := os.Executable()
	must(err)
	for _, kind := range []string{"trusted", "sandboxed", "unconfined"} {
		rules := sandbox.Rules{Confinement: sandbox.Always, ReadWrite: []string{work}, ReadOnly: []string{filepath.Dir(self)}}
		switch kind {
		case "trusted":
			rules.ReadOnly, rules.Network = []string{"/"}, true
		case "unconfined":
			rules = sandbox.Rules{}
		}
		for _, with := range []bool{true, false} {
			p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: role("at-terminal", name, args[1]), Dir: work, Rules: rules, Stdin: true, Terminal: with})
			must(err)
			text, err := io.ReadAll(p.Stdout())
			must(err)
			p.Close()
			fmt.Printf("%s %v: %s\n", kind, with, strings.Join(strings.Fields(string(text)), " "))
		}
		shown, err := unix.Read(master, make([]byte, 100))
		typed, failed := unix.IoctlGetInt(slave, unix.TIOCINQ)
		fmt.Println("outside:", shown > 0, err, typed > 0, failed)
	}
}

// A program's terminal is in a view of its own: it reaches no other one, neither by its path nor
// as its controlling one, by which it could type commands for whoever has that.
func TestTerminals(t *testing.T) {
	const (
		own    = "120 40 terminal /dev/tty session of its own: true"
		none   = "no terminal no /dev/tty"
		inView = own + " another of its own lists 0 ptmx makes terminals"
		nobody = "outside: false resource temporarily unavailable false <nil>\n"
	)
	for _, uid := range []uint32{0, 65534} {
		if os.Getuid() != 0 && uid == 0 {
			continue
		}
		for how, with := range map[string]string{"views": inView, "copies": inView, "bare": own} {
			got := asUser(t, uid, "terminals", how)
			got, unconfined, _ := strings.Cut(got, "unconfined")
			want := "trusted true: " + with + "\ntrusted false: " + none + "\n" + nobody + "sandboxed true: " + with + "\nsandboxed false: " + none + "\n" + nobody
			if !strings.Contains(unconfined, "outside: true") { // what its user may, it may
				t.Errorf("%d %s: %s", uid, how, unconfined)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%d %s: %s", uid, how, diff)
			}
		}
	}
}

// What is typed reaches a program to its end, within a line too, and all that a program shows is
// read, whoever keeps its terminal open.
func TestWhatIsTypedAndShown(t *testing.T) {
	var numbers strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&numbers, "%d\r\n", i+1)
	}
	for name, tt := range map[string]struct{ script, typed, want string }{
		"lines":      {"wc -l", "one\ntwo\n", "2\r\n"},
		"no line":    {"wc -c", "one\ntwo", "7\r\n"},
		"nothing":    {"wc -c", "", "0\r\n"},
		"much":       {"seq 1 20000", "", numbers.String()},
		"detached":   {"exec >&- 2>&- <&-; echo hello >/dev/tty", "", "hello\r\n"},
		"background": {"trap '' HUP; (setsid sleep 1000 &); sleep 1000 & echo up", "", "up\r\n"},
	} {
		for _, confinement := range []sandbox.Confinement{sandbox.Unconfined, sandbox.Always} {
			rules := sandbox.Rules{Confinement: confinement, ReadWrite: []string{t.TempDir()}}
			p := start(t, sandbox.Spec{Argv: sh(tt.script), Rules: rules, Stdin: tt.typed != "", Terminal: true})
			if tt.typed != "" {
				if _, err := io.WriteString(p.Stdin(), tt.typed); err != nil {
					t.Error(err)
				}
				p.Stdin().Close()
			}
			text, err := io.ReadAll(p.Stdout())
			if err != nil || !strings.HasSuffix(string(text), tt.want) || tt.typed == "" && string(text) != tt.want {
				t.Errorf("%s, %d: %.100q, %v", name, confinement, text, err)
			}
			if exit := p.Wait(); exit.Code != 0 {
				t.Errorf("%s, %d: %+v", name, confinement, exit)
			}
		}
	}
}
