//go:build unix

package writequeue_test

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/writequeue"
)

// A write that Room vouches for never blocks, however full the pipe is; one
// that would block is not vouched for.
func TestRoom(t *testing.T) {
	for _, size := range []int{100, 300, 512, 4096, 4097} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		room := writequeue.Poll(w)
		raw, err := w.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for room.Ready(size) {
			piece := bytes.Repeat([]byte{'x'}, size)
			if err := raw.Control(func(fd uintptr) {
				if n, err := unix.Write(int(fd), piece); n != size || err != nil { // the pipe is non-blocking in Go
					t.Errorf("write %d of %d bytes: %d, %v", count, size, n, err)
				}
			}); err != nil || t.Failed() {
				t.Fatal(err)
			}
			count++
		}
		if vouched := size <= 4096; vouched != (count > 0) {
			t.Errorf("%d writes of %d bytes have room", count, size)
		}
	}
}

func TestRoomElsewhere(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !writequeue.Poll(f).Ready(1 << 20) {
		t.Error("a regular file has no room")
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if !writequeue.Poll(null).Ready(1 << 20) {
		t.Error("/dev/null has no room")
	}
	if writequeue.Poll(&bytes.Buffer{}).Ready(1) {
		t.Error("the room of a writer that is no file is known")
	}
}
