package main

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pipe that blocks can be read with a deadline, ends as it did, and stays as
// it is for others.
func TestPollable(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	in, out := os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")
	defer in.Close()
	got := pollable(in)
	defer got.Close()
	if err := got.SetReadDeadline(time.Now()); err != nil {
		t.Fatalf("its reads cannot be interrupted: %v", err)
	}
	if _, err := got.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past the deadline: %v", err)
	}
	if err := got.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags of the pipe are %#x, %v, want it to block as before", flags, err)
	}
	if _, err := out.WriteString("all"); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(got); string(text) != "all" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
}

// The writer may be gone before we look, and what is no pipe is left alone.
func TestPollableOrNot(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	got := pollable(in)
	defer got.Close()
	if text, err := io.ReadAll(got); len(text) > 0 || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
	file, err := os.Open("pollable_linux_test.go")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := pollable(file); got != file {
		t.Error("a file was opened anew")
	}
}
