package segmentlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"nexus.internal/protocol/safefile"
)

// Past is what a log that is made begins with.
type Past struct {
	Events  []Segment // files of events as a log has them, oldest first, at most DefaultSegments
	Last    uint64    // no event has a higher number
	Account []byte    // nil for none
	Lines   []byte    // as those of Write
	Rooms   int
}

// Make makes a log in dir, whole or not at all; there must be none. Until then it is DIR.new, where
// another one is of a process that was killed. With durable it is on the disk when Make returns.
func Make(dir string, p Past, durable bool) error {
	next, err := unfinishedDir(dir)
	if err == nil {
		err = fill(next, p, durable)
	}
	if err == nil {
		err = os.Rename(next, dir)
	}
	if err != nil {
		return fmt.Errorf("make records: %w", errors.Join(err, os.RemoveAll(next)))
	}
	if !durable {
		return nil
	}
	return safefile.SyncDir(filepath.Dir(dir))
}

// unfinishedDir makes the directory in which a log is made, empty.
func unfinishedDir(dir string) (next string, err error) {
	next = dir + unfinished
	return next, errors.Join(os.RemoveAll(next), safefile.Mkdir(next))
}

// fill writes the segments of a log into a directory, the last one with a snapshot.
func fill(dir string, p Past, durable bool) error {
	var errs []error
	if len(p.Events) == 0 {
		p.Events = []Segment{{First: p.Last + 1}}
	}
	for i, s := range p.Events {
		h, begins := header{Since: 1, First: s.First}, Past{}
		if i == len(p.Events)-1 {
			h.Reserved, begins = p.Last, p
		}
		errs = append(errs, copyEvents(dir, uint64(i+1), h, begins, s, durable))
	}
	if durable {
		errs = append(errs, safefile.SyncDir(dir))
	}
	return errors.Join(errs...)
}

// copyEvents makes a segment with the lines of another file, if that has a name.
func copyEvents(dir string, number uint64, h header, p Past, s Segment, durable bool) error {
	end, _, file, err := begin(dir, number, h, p, false)
	if err != nil {
		return err
	}
	if s.Path != "" {
		from, failed := safefile.Open(s.Path, os.O_RDONLY)
		if err = failed; err == nil {
			_, err = io.Copy(io.NewOffsetWriter(file, end.Size), io.NewSectionReader(from, s.From, s.Size-s.From))
			from.Close()
		}
	}
	if err == nil && durable {
		err = file.Sync()
	}
	return errors.Join(err, safefile.Release(file))
}

// begin makes a segment, which is locked before it has its name.
func begin(dir string, number uint64, h header, p Past, durable bool) (s Segment, _ header, file *os.File, err error) {
	s = Segment{Path: filepath.Join(dir, fmt.Sprintf("%020d%s", number, suffix)), Number: number, First: h.First}
	data := make([]byte, headerSize)
	if p.Account != nil {
		h.Account = headerSize
		data = appendAccount(data, p.Account)
	}
	data = append(data, p.Lines...)
	for range p.Rooms {
		data = append(data, emptyRoom...)
	}
	s.From, s.Size, h.Snapshot = int64(len(data)), int64(len(data)), int64(len(data))
	copy(data, h.encode())
	file, err = safefile.Renew(s.Path, func(file *os.File) error {
		err := safefile.Lock(file)
		if err == nil {
			_, err = file.Write(data)
		}
		if err == nil && durable {
			err = file.Sync()
		}
		return err
	})
	if err == nil && durable {
		err = safefile.SyncDir(dir)
	}
	return s, h, file, err
}
