package mirror

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"nexus.internal/protocol/safefile"
)

// Save lays out the files of an agent, any machine's, below o.Root, as they were shipped last: those of one moment, at which its owner had a
// majority for them. It writes nothing to the stream, and needs no Epoch. The error is [ErrNothing] if none were shipped.
func (s *Stream) Save(ctx context.Context, o Options) (err error) {
	scratch, err := safefile.MakeDir(o.Scratch)
	if err != nil {
		return fmt.Errorf("save %s: %w", o.Agent, err)
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	m := &Mirror{o: o, s: s, subject: s.subject(o.Agent), fence: math.MaxUint64}
	l := &layout{m: m, dir: filepath.Clean(scratch.Path())}
	err = l.read(ctx)
	if err == nil && !l.complete {
		err = ErrNothing
	}
	if err == nil {
		err = l.check()
	}
	if err == nil {
		err = l.place()
	}
	if err != nil {
		return fmt.Errorf("save %s: %w", o.Agent, err)
	}
	return nil
}
