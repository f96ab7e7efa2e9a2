package cli_test

import (
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"nexus.internal/cmd/internal/cli"
)

// What was typed before a question was asked is no answer to it: a "y" that was meant for something
// else must not allow a call.
func TestWhatWasTypedBeforeIsDropped(t *testing.T) {
	terminal, ours, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer ours.Close()
	typed := func(patience int) bool { // milliseconds; -1 for as long as it takes
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(ours.Fd()), Events: unix.POLLIN}}, patience)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	if _, err := terminal.WriteString("y\n"); err != nil {
		t.Fatal(err)
	}
	if !typed(-1) {
		t.Fatal("nothing was typed")
	}
	if err := cli.DropTyped(int(ours.Fd())); err != nil {
		t.Fatal(err)
	}
	if typed(0) {
		t.Error("it is still to be read")
	}
}
