package file

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing/iotest"
)

// Recode decodes a text and encodes it again; false if it is none.
func Recode(content []byte) (text string, again []byte, ok bool) {
	e := sniff(content)
	if e == notText {
		return "", nil, false
	}
	whole, err := io.ReadAll(e.reader(bytes.NewReader(content)))
	if err != nil {
		panic(err)
	}
	pieces, err := io.ReadAll(iotest.OneByteReader(e.reader(iotest.OneByteReader(bytes.NewReader(content)))))
	if err != nil || !bytes.Equal(whole, pieces) {
		panic("a text depends on how its bytes come")
	}
	stored, err := e.encode(string(whole))
	if err != nil {
		panic(err)
	}
	return string(whole), []byte(stored), true
}

// DeleteThenMove makes two changes, all or none.
func DeleteThenMove(ctx context.Context, s Space, deleted, from, to string) ([]string, error) {
	var places [3]*place
	for i, path := range []string{deleted, from, to} {
		p, err := s.find("test", path, true)
		if err != nil {
			return nil, err
		}
		defer p.close()
		places[i] = p
	}
	return carryOut(ctx, &change{attempt: "delete", at: places[0]}, &change{attempt: "move", from: places[1], at: places[2], arrives: true})
}

// WriteAndUndo writes a file as one of several and takes that back, after meanwhile was called.
func WriteAndUndo(ctx context.Context, s Space, path, content string, meanwhile func()) (changed []string, err error) {
	p, err := s.find("test", path, true)
	if err != nil {
		return nil, err
	}
	defer p.close()
	c := &change{attempt: "write", at: p, content: strings.NewReader(content), several: true}
	defer func() { c.close(err != nil) }()
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	if err := c.do(); err != nil {
		return nil, err
	}
	meanwhile()
	return undo([]*change{c})
}

// Write writes a file with what is read.
func Write(ctx context.Context, s Space, path string, content io.Reader) error {
	p, err := s.find("test", path, true)
	if err != nil {
		return err
	}
	defer p.close()
	_, err = carryOut(ctx, &change{attempt: "write", at: p, content: content})
	return err
}
