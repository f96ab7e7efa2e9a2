package journal

import (
	"io"
	"os"
)

// Locked is the file that is locked.
func (j *Journal) Locked() *os.File { return j.locked }

// Break makes writes to the file fail with err after limit more bytes, as a
// full disk does, and every sync; nil mends it.
func (j *Journal) Break(limit int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b, ok := j.file.(*brokenFile); ok {
		j.file = b.file
	}
	if err != nil {
		j.file = &brokenFile{file: j.file, limit: limit, err: err}
	}
}

type brokenFile struct {
	file
	limit int
	err   error
}

func (b *brokenFile) Write(p []byte) (int, error) {
	if len(p) <= b.limit {
		b.limit -= len(p)
		return b.file.Write(p)
	}
	n, _ := b.file.Write(p[:b.limit])
	return n, b.err
}

func (b *brokenFile) Sync() error { return b.err }

var _ io.Writer = (*brokenFile)(nil)
