package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/protocol/safefile"
)

// keptTail is how many of a file's last bytes are compared, to see that it has only grown.
const keptTail = 1 << 10

// Sync returns once all that the files have when it is called is on a majority of the machines. After an error the
// next Sync ships what is missing, but for [ErrFenced], which stays.
func (m *Mirror) Sync(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.sync(ctx); err != nil {
		return fmt.Errorf("mirror %s: %w", m.o.Agent, err)
	}
	return nil
}

func (m *Mirror) sync(ctx context.Context) error {
	files, size, err := m.files()
	if err != nil {
		return err
	}
	if size > m.o.MaxBytes {
		return fmt.Errorf("%w: %d bytes, and %d are", ErrTooLarge, size, m.o.MaxBytes)
	}
	if m.whole && m.sent <= growth*size+slack {
		b := &batch{m: m}
		if err := b.ship(ctx, files); err != nil {
			return err
		}
		return b.flush(ctx, false)
	}
	m.shipped, m.whole, m.sent = map[string]shipped{}, false, 0
	if err := m.publish(ctx, message{Begins: true}); err != nil {
		return err
	}
	begins := m.last
	b := &batch{m: m}
	if err := b.ship(ctx, files); err != nil {
		return err
	}
	if err := b.flush(ctx, true); err != nil {
		return err
	}
	m.whole, m.sent = true, 0
	// What is not removed now is the next time.
	_ = m.stream.Purge(ctx, jetstream.WithPurgeSubject(m.subject), jetstream.WithPurgeSequence(begins))
	return nil
}

// files are the files that there are, in their order, and how large they are together.
func (m *Mirror) files() (paths []string, size int64, err error) {
	for _, path := range m.o.Paths {
		// WalkDir follows a link at the beginning, though at none that it finds.
		if info, err := m.root.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink != 0 {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, 0, err
			}
			continue
		}
		err := fs.WalkDir(m.root.FS(), filepath.ToSlash(path), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case !entry.Type().IsRegular():
				return nil
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			size += info.Size()
			paths = append(paths, filepath.FromSlash(path))
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return paths, size, nil
}

// batch gathers changes for one message.
type batch struct {
	m       *Mirror
	changes []change
	pieces  [][]byte
	size    int
	after   map[string]shipped // what the others have then
	gone    []string
}

// ship sends what has changed of the files, but for the last message.
func (b *batch) ship(ctx context.Context, files []string) error {
	for _, path := range slices.Sorted(maps.Keys(b.m.shipped)) {
		if !slices.Contains(files, path) {
			b.changes, b.pieces, b.gone = append(b.changes, change{Path: path, Gone: true}), append(b.pieces, nil), append(b.gone, path)
		}
	}
	for _, path := range files {
		if err := b.file(ctx, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// file ships what has changed of one file.
func (b *batch) file(ctx context.Context, path string) error {
	f, err := safefile.OpenIn(b.m.root, path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	now := shipped{id: safefile.Identify(info), size: info.Size()}
	before, known := b.m.shipped[path]
	at := int64(0)
	if known && before.id == now.id && before.size <= now.size {
		tail := make([]byte, len(before.tail))
		if _, err := f.ReadAt(tail, before.size-int64(len(tail))); err == nil && bytes.Equal(tail, before.tail) {
			at, now.tail = before.size, tail
		}
	}
	if known && at == now.size && at == before.size {
		return nil
	}
	for first := true; first || at < now.size; first = false {
		piece := make([]byte, min(now.size-at, int64(chunk-b.size)))
		n, err := f.ReadAt(piece, at)
		if err != nil && err != io.EOF {
			return err
		}
		if piece = piece[:n]; n == 0 {
			now.size = at // it was cut meanwhile
		}
		tail := slices.Concat(now.tail, piece)
		now.tail = tail[max(0, len(tail)-keptTail):]
		b.add(path, change{Path: path, At: at, Size: n}, piece, shipped{now.id, at + int64(n), now.tail})
		at += int64(n)
		if b.size >= chunk {
			if err := b.flush(ctx, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *batch) add(path string, c change, piece []byte, after shipped) {
	if b.after == nil {
		b.after = map[string]shipped{}
	}
	b.changes, b.pieces, b.size, b.after[path] = append(b.changes, c), append(b.pieces, piece), b.size+len(piece), after
}

// flush sends what was gathered; complete says that the files were shipped whole by then.
func (b *batch) flush(ctx context.Context, complete bool) error {
	if len(b.changes) == 0 && !complete {
		return nil
	}
	if err := b.m.publish(ctx, message{Changes: b.changes, Complete: complete}, b.pieces...); err != nil {
		b.m.whole = b.m.whole && errors.Is(err, ErrFenced) // what the others have is not known
		return err
	}
	maps.Copy(b.m.shipped, b.after)
	for _, path := range b.gone {
		delete(b.m.shipped, path)
	}
	b.m.sent += int64(b.size)
	*b = batch{m: b.m}
	return nil
}
