package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// warmLines is how many short lines come before.
const warmLines = 8

// endless are the figures of a line that never ends, which must cost nobody
// more than a buffer.
func (b *bench) endless(ctx context.Context, _ *server) ([]row, error) {
	into, err := b.endlessInto(ctx)
	if err != nil {
		return nil, fmt.Errorf("into a child: %w", err)
	}
	outOf, err := b.endlessOutOf(ctx)
	if err != nil {
		return nil, fmt.Errorf("out of a child: %w", err)
	}
	long := fmt.Sprintf("%d MiB", b.size.endless>>20)
	return []row{
		{"endless line into nexus-child: its growth", into, 0, long, size, atMost(2 << 20)},
		{"endless line out of a child: server's growth", outOf, 0, long, size, atMost(2 << 20)},
	}, nil
}

func (b *bench) endlessInto(ctx context.Context) (float64, error) {
	child, err := startEcho(b.child(ctx))
	if err != nil {
		return 0, err
	}
	defer child.close()
	if err := oneTurn(child); err != nil { // what any turn costs is not the line's
		return 0, err
	}
	piece := bytes.Repeat([]byte("x"), 64<<10)
	return growth(child.cmd.Process.Pid, func() error {
		for range b.size.endless / len(piece) {
			if _, err := child.in.Write(piece); err != nil {
				return err
			}
		}
		return nil
	})
}

// oneTurn has a running child answer one prompt.
func oneTurn(child *echo) error {
	if _, err := child.in.Write([]byte(`{"type":"prompt","id":"1","message":"` + oneWord + `"}` + "\n")); err != nil {
		return err
	}
	for {
		line, err := child.out.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("read the child's answer: %w", err)
		}
		if bytes.Contains(line, []byte(`"type":"response"`)) {
			return nil
		}
	}
}

// endlessOutOf gives a server a child that answers a send with such a line and
// ends with it, so that the end of the send is the end of the line. The first
// have short ones: what any crash costs is not the line's.
func (b *bench) endlessOutOf(ctx context.Context) (_ float64, err error) {
	child, length := filepath.Join(b.dir, "endless"), filepath.Join(b.dir, "length")
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' endless \"$(cat '%s')\"\n", b.floor(), length)
	if err := os.WriteFile(child, []byte(script), 0o700); err != nil {
		return 0, err
	}
	s, err := b.startServer(ctx, "--child="+child)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	for range warmLines {
		if _, err := s.endlessLine(ctx, length, 64<<10); err != nil {
			return 0, err
		}
	}
	return s.endlessLine(ctx, length, b.size.endless)
}

// endlessLine has a new agent crash with a line of n bytes, and measures what
// the server grows by. The children read n from the file length.
func (s *server) endlessLine(ctx context.Context, length string, n int) (float64, error) {
	if err := os.WriteFile(length, []byte(strconv.Itoa(n)), 0o600); err != nil {
		return 0, err
	}
	id := s.newID()
	if err := s.create(ctx, id); err != nil {
		return 0, err
	}
	grown, err := growth(s.cmd.Process.Pid, func() error {
		if err := s.send(ctx, id, oneWord); !errors.As(err, new(*answerError)) {
			return fmt.Errorf("a child that crashed is no error: %w", err)
		}
		return nil
	})
	return grown, errors.Join(err, s.destroy(ctx, id))
}
