package shell

import (
	"strings"
	"syscall"
)

// Collect gives chunks to a collector, and what it shows of them and has told.
func Collect(most int, dir string, chunks [][]byte) (text, told string) {
	c := newCollector(most, dir, heard{&told}, nil)
	defer c.close()
	for _, b := range chunks {
		_, _ = c.Write(b)
	}
	return c.text(), told
}

// heard is what a call has reported.
type heard struct{ text *string }

func (heard) Wanted() bool { return true }

func (h heard) Report(text string) { *h.text += text }

// Showing is New, but a result shows so many bytes of the output.
func Showing(most int, o Options) Tool {
	s := New(o).(*shell)
	s.maxOutput = most
	return s
}

// AwaitEnd returns when that job has ended.
func AwaitEnd(s *Jobs, id string) {
	j, err := s.find(id)
	if err != nil {
		panic(err)
	}
	for changed := j.quiet(0, true); changed != nil; changed = j.quiet(0, true) {
		<-changed
	}
}

// MakeFIFO makes a named pipe.
func MakeFIFO(path string) error { return syscall.Mkfifo(path, 0o600) }

// Clean is what a cleaner makes of what a terminal is shown, in pieces.
func Clean(pieces ...[]byte) string {
	var b strings.Builder
	c := &cleaner{to: &b}
	for _, piece := range pieces {
		_, _ = c.Write(piece)
	}
	return b.String()
}
