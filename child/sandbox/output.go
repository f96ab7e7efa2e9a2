package sandbox

import (
	"errors"
	"io"
	"os"
	"time"
)

// output is the reading side of a pipe. Once the process is gone, nobody is
// expected to write to it any more.
type output struct {
	file *os.File
	done <-chan struct{}
}

func (o *output) Close() error { return o.file.Close() }

func (o *output) Read(b []byte) (int, error) {
	for range 2 { // the first may have begun long before the end
		select {
		case <-o.done:
			_ = o.file.SetReadDeadline(time.Now().Add(drainGrace)) // fails only if it was closed
		default:
		}
		n, err := o.file.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	return 0, io.EOF
}
