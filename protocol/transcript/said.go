package transcript

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
)

// Said are the digests of all that was ever said in a session, in its order: of messages, and of answers that were cut off. A copy of a session that goes on has
// those of the other one first, also under another name. A last line that was not written whole is none.
func Said(session io.Reader) (all [][sha256.Size]byte, err error) {
	in := bufio.NewReaderSize(session, 64<<10)
	line := sha256.New()
	for begins, counts := true, false; ; {
		part, err := in.ReadSlice('\n')
		if begins {
			line.Reset()
			counts = bytes.HasPrefix(part, counted[0]) || bytes.HasPrefix(part, counted[1])
		}
		if counts {
			line.Write(part)
		}
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
		if begins = err == nil; begins && counts {
			all = append(all, [sha256.Size]byte(line.Sum(nil)))
		}
	}
}
