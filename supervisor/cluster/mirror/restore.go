package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/protocol/safefile"
)

// Restore lays out the files as they were shipped before Take, in the place of those that are there, which stay if
// none were shipped ([ErrNothing]). Unless nil, clear is called before, once the files are here: it may put away what is
// there. The agent must not run. After an error it may be called again, as long as Sync was not.
func (m *Mirror) Restore(ctx context.Context, clear func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.restore(ctx, clear); err != nil {
		return fmt.Errorf("restore %s: %w", m.o.Agent, err)
	}
	return nil
}

func (m *Mirror) restore(ctx context.Context, clear func() error) error {
	if m.number > 1 {
		return errors.New("its files were shipped since")
	}
	scratch, err := safefile.MakeDir(m.o.Scratch)
	if err != nil {
		return err
	}
	defer func() { _ = scratch.Remove() }() // the next one sweeps it
	l := &layout{m: m, dir: scratch.Path()}
	if err := l.read(ctx); err != nil {
		return err
	}
	if !l.complete {
		return ErrNothing
	}
	if err := l.check(); err != nil {
		return err
	}
	if clear != nil {
		if err := clear(); err != nil {
			return err
		}
	}
	if err := l.place(); err != nil {
		return err
	}
	m.names, m.held = false, l.held
	m.held.take(message{Number: 1}) // Take's
	return nil
}

// read gives all messages that came before Take's. Each is asked for: what a consumer misses of a stream of which something has just been
// removed, it would wait for.
func (m *Mirror) read(ctx context.Context, take func(message, [][]byte) error) error {
	for next := uint64(1); ; {
		var raw *jetstream.RawStreamMsg
		err := retry(ctx, func(ctx context.Context) (err error) {
			raw, err = m.s.stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(m.subject))
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) && m.fence == math.MaxUint64 { // that was the last one
			return nil
		}
		if err != nil {
			return err
		}
		if raw.Sequence >= m.fence {
			return nil
		}
		head, pieces, err := decode(raw.Data)
		if err == nil {
			err = take(head, pieces)
		}
		if err != nil {
			return err
		}
		next = raw.Sequence + 1
	}
}

// layout are files as they come out of the stream: in one directory those that are whole, in another one those that
// are being shipped whole.
type layout struct {
	m       *Mirror
	dir     string
	writing bool    // messages are of files that are shipped whole
	last    message // without its changes
	// complete says that there are whole ones.
	complete bool
	held     held
	// missing are the files of which an object was not found, below dir: it may have been removed since, with the messages before a later one that ships the files whole.
	missing map[string]change
}

// read lays out what all messages say that came before Take's.
func (l *layout) read(ctx context.Context) error {
	return l.m.read(ctx, func(head message, pieces [][]byte) error { return l.take(ctx, head, pieces) })
}

// errMissing says that the machine that was asked lacks a message that was shipped. Another one may have it, which is asked once it leads the others.
var errMissing = errors.New("a message of the mirror is missing")

// check sees that all objects were there, and that the log goes as far as the last message said when the agent was taken; one that begins to ship files whole says how far those of before went.
func (l *layout) check() error {
	for path, c := range l.missing {
		if in(wholeDir, path) {
			return fmt.Errorf("%w: %d bytes at %d of %s", errNoObject, c.Size, c.At, c.Path)
		}
	}
	said := l.m.log
	if said == (extent{}) {
		return nil
	}
	info, err := os.Lstat(filepath.Join(l.dir, wholeDir, said.Path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || info.Size() < said.Size {
		return fmt.Errorf("%w: the log is to have %d bytes of %s", errMissing, said.Size, said.Path)
	}
	return nil
}

const wholeDir, comingDir = "whole", "coming"

// take takes the next message. Epochs only grow: one of an earlier owner behind one of a later shows that two machines wrote.
func (l *layout) take(ctx context.Context, head message, pieces [][]byte) error {
	if head.Epoch < l.last.Epoch {
		return fmt.Errorf("a message of the owner with the epoch %d stands behind one of %d: %w", head.Epoch, l.last.Epoch, ErrUnreadable)
	}
	changes := len(head.Changes) > 0 || head.Complete
	if changes && !head.Begins && (head.Epoch != l.last.Epoch || head.Writer != l.last.Writer || head.Number != l.last.Number+1) && l.last.Number > 0 {
		return fmt.Errorf("%w between the numbers %d and %d of the epoch %d", errMissing, l.last.Number, head.Number, head.Epoch)
	}
	l.last = head
	if head.Begins || head.Number == 1 { // of an owner that was cut off while it shipped them, no more comes
		if err := os.RemoveAll(filepath.Join(l.dir, comingDir)); err != nil {
			return err
		}
		l.writing = head.Begins
		maps.DeleteFunc(l.missing, func(path string, _ change) bool { return in(comingDir, path) })
	}
	l.held.take(head)
	to := wholeDir
	if l.writing {
		to = comingDir
	}
	for i, c := range head.Changes {
		if !l.m.ours(c.Path) {
			return fmt.Errorf("the file %q is none of the agent's", c.Path)
		}
		path, top := filepath.Join(l.dir, to, c.Path), filepath.Join(l.dir, to)
		if err := l.apply(ctx, filepath.Join(to, c.Path), c, pieces[i]); err != nil {
			return err
		}
		if c.Gone { // directories are not shipped: one without files is none
			for dir := filepath.Dir(path); dir != top && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
			}
		}
	}
	if !head.Complete {
		return nil
	}
	l.writing, l.complete = false, true
	if err := os.RemoveAll(filepath.Join(l.dir, wholeDir)); err != nil {
		return err
	}
	missing := l.missing
	l.missing = nil
	for path, c := range missing {
		if in(comingDir, path) {
			l.misses(filepath.Join(wholeDir, c.Path), c)
		}
	}
	err := os.Rename(filepath.Join(l.dir, comingDir), filepath.Join(l.dir, wholeDir))
	if errors.Is(err, fs.ErrNotExist) { // there were no files
		return nil
	}
	return err
}

func in(dir, path string) bool { return strings.HasPrefix(path, dir+string(filepath.Separator)) }

// misses notes that an object of a file was not found.
func (l *layout) misses(path string, c change) {
	if l.missing == nil {
		l.missing = map[string]change{}
	}
	l.missing[path] = c
}

// apply makes one change to a file, whose path is below the directory of all.
func (l *layout) apply(ctx context.Context, path string, c change, piece []byte) error {
	if c.Gone || c.At == 0 && !c.Patch {
		delete(l.missing, path)
	}
	if c.Object != "" {
		var err error
		if piece, err = l.m.s.get(ctx, c); errors.Is(err, errNoObject) {
			l.misses(path, c)
			piece = make([]byte, c.Size)
		} else if err != nil {
			return err
		}
	}
	return apply(filepath.Join(l.dir, path), c, piece)
}

// apply makes one change to a file.
func apply(path string, c change, piece []byte) error {
	if c.Gone {
		return os.Remove(path)
	}
	flags := os.O_WRONLY | os.O_CREATE
	if c.At == 0 && !c.Patch {
		flags |= os.O_TRUNC
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if end := c.At + int64(c.Size); err == nil && (c.Patch && info.Size() < end || !c.Patch && info.Size() != c.At) {
		err = fmt.Errorf("%s has %d bytes, which a change at %d does not fit", c.Path, info.Size(), c.At)
	}
	if err == nil {
		_, err = f.WriteAt(piece, c.At)
	}
	return errors.Join(err, f.Close())
}

// place puts the whole files into the place of those that are there, durably.
func (l *layout) place() error {
	for _, path := range l.m.o.Paths {
		to, from := filepath.Join(l.m.o.Root, path), filepath.Join(l.dir, wholeDir, path)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := durable(from); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return safefile.SyncDir(l.m.o.Root)
}

// durable has a file, or all in a directory, on the disk.
func durable(path string) error {
	return filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return safefile.SyncDir(path)
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
