package sessionlog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// Bounds of one reading of a session, in bytes.
const (
	maxLine  = 64 << 20 // of a line; a longer one is passed over
	maxPiece = 1 << 20  // of the session, read for one transaction; but for a single line
)

// session is the file of a session that somebody else writes. The file stays readable here when it is
// removed with its agent.
type session struct {
	file   *os.File
	header transcript.Header
}

// openSession opens the file. ok is false where there is none yet, or its first line is not written.
func openSession(path string) (_ *session, ok bool) {
	file, err := safefile.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, false
	}
	line, _, err := lineOf(bufio.NewReader(io.NewSectionReader(file, 0, maxLine)))
	if err != nil {
		file.Close()
		return nil, false
	}
	record, err := transcript.Decode(line)
	header, is := record.(transcript.Header)
	if err != nil || !is {
		file.Close()
		return nil, false
	}
	return &session{file: file, header: header}, true
}

// piece is what was read of a session at once.
type piece struct {
	entries []Entry
	next    int64 // where the next piece begins
	more    bool  // there is one already
}

// read reads whole lines from an offset on, about maxPiece bytes. The pieces of an answer that is not whole are
// read again the next time, or, with last, are an entry.
func (s *session) read(from int64, last bool) (p piece, err error) {
	info, err := s.file.Stat()
	if err != nil {
		return p, err
	}
	if p.next = from; info.Size() < from { // nobody shortens it; there is nothing new to be found
		return p, nil
	}
	written := timeOf(info.ModTime()) // of what has no time of its own
	lines := bufio.NewReaderSize(io.NewSectionReader(s.file, from, info.Size()-from), 64<<10)
	var open strings.Builder // the text of the pieces that have no message yet
	opened, turn, at := from, "", from
	for at-from < maxPiece || open.Len() > 0 && at-from < maxLine {
		line, length, err := lineOf(lines)
		switch {
		case errors.Is(err, io.EOF): // the rest is being written
			p.next = at
			if open.Len() > 0 && !last {
				p.next = opened
			} else if open.Len() > 0 {
				p.entries = append(p.entries, Entry{At: written, Kind: "partial", TurnID: turn, Text: open.String()})
			}
			return p, nil
		case err != nil:
			return p, err
		}
		before := at
		at += length
		if line == nil {
			p.entries = append(p.entries, Entry{At: written, Kind: "gap", Text: fmt.Sprintf("a line of %d bytes in the session", length)})
			continue
		}
		record, err := transcript.Decode(line)
		if err != nil {
			p.entries = append(p.entries, Entry{At: written, Kind: "gap", Text: fmt.Sprintf("a line of %d bytes in the session cannot be read: %v", length, err)})
			continue
		}
		if part, ok := record.(transcript.Partial); ok {
			if open.Len() == 0 {
				opened, turn = before, part.TurnID
			}
			open.WriteString(part.Thinking + part.Text)
			continue
		}
		found := entriesOf(record)
		if len(found) > 0 {
			open.Reset()
		}
		p.entries = append(p.entries, found...)
	}
	p.next, p.more = at, true
	return p, nil
}

// lineOf reads one line, newline excluded, nil for one of more than maxLine bytes, and its length
// with the newline. The error is io.EOF where there is no whole line.
func lineOf(r *bufio.Reader) (line []byte, length int64, err error) {
	line = []byte{}
	for {
		part, err := r.ReadSlice('\n')
		length += int64(len(part))
		if line != nil && len(line)+len(part) <= maxLine {
			line = append(line, part...)
		} else {
			line = nil
		}
		switch {
		case err == nil:
			return line[:max(0, len(line)-1)], length, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, 0, err
		}
	}
}
