package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pollable is stdin opened anew if it is a pipe: a read that waits then holds no
// thread, so that a command is taken up without a change of threads, and can be
// interrupted. Whoever else has the pipe does not notice. Where that cannot be
// had it is stdin itself.
func pollable(stdin *os.File) *os.File {
	info, err := stdin.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return stdin
	}
	again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(stdin.Fd())), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return stdin
	}
	return again
}
