package mirror

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/protocol/safefile"
)

// Sync returns once all that the files have when it is called is on a majority of the machines. After an error the
// next Sync ships what is missing, but for [ErrFenced], which stays.
func (m *Mirror) Sync(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.sync(ctx); err != nil {
		return fmt.Errorf("mirror %s: %w", m.o.Agent, err)
	}
	m.all = false
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
	if err := m.knowObjects(ctx); err != nil {
		return err
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
	// What is not removed now is the next time: nobody waits for that while the machines elect one that leads them.
	ctx, cancel := context.WithTimeout(ctx, purgePatience)
	defer cancel()
	if m.s.stream.Purge(ctx, jetstream.WithPurgeSubject(m.subject), jetstream.WithPurgeSequence(begins)) == nil {
		m.clean(ctx)
	}
	return nil
}

// found is a file as a walk has found it.
type found struct {
	path string
	info fs.FileInfo
}

// files are the files that there are, in their order, and how large they are together.
func (m *Mirror) files() (all []found, size int64, err error) {
	add := func(path string, info fs.FileInfo) {
		size += info.Size()
		all = append(all, found{filepath.FromSlash(path), info})
	}
	for _, path := range m.o.Paths {
		info, err := m.root.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, 0, err
		case info.Mode().IsRegular():
			add(path, info)
			continue
		case !info.IsDir(): // WalkDir follows a link at the beginning, though at none that it finds
			continue
		}
		err = fs.WalkDir(m.root.FS(), filepath.ToSlash(path), func(path string, entry fs.DirEntry, err error) error {
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
			if err == nil {
				add(path, info)
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return all, size, nil
}

// batch gathers changes for one message.
type batch struct {
	m       *Mirror
	changes []change
	pieces  [][]byte
	size    int
	put     int                // bytes that went to the object store
	inline  bool               // nothing goes there any more
	after   map[string]shipped // what the others have then
	gone    []string
}

// ship sends what has changed of the files, but for the last message.
func (b *batch) ship(ctx context.Context, files []found) error {
	for _, path := range slices.Sorted(maps.Keys(b.m.shipped)) {
		if !slices.ContainsFunc(files, func(f found) bool { return f.path == path }) {
			b.changes, b.pieces, b.size = append(b.changes, change{Path: path, Gone: true}), append(b.pieces, nil), b.size+len(path)+changeBytes
			b.gone = append(b.gone, path)
			if err := b.flushFull(ctx); err != nil {
				return err
			}
		}
	}
	for _, f := range files {
		if err := b.file(ctx, f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// file ships what has changed of one file.
func (b *batch) file(ctx context.Context, of found) error {
	path := of.path
	before, known := b.m.shipped[path]
	if known && before.settled && before.found(of.info).settled && !b.m.all {
		return nil
	}
	f, err := safefile.OpenFound(b.m.root, path, of.info)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	now := before.found(info)
	if !known || before.id != now.id || before.size > now.size {
		before = shipped{}
	}
	grows := among(path, b.m.o.Growing)
	if grows {
		if has, err := before.ends(f, b.m.block[:]); err != nil {
			return err
		} else if !has {
			before = shipped{}
		}
	}
	now.sums = slices.Clone(before.sums)
	compared := len(now.sums)
	if grows && !b.m.all {
		compared = min(compared, 1)
	}
	if err := b.patches(ctx, f, path, before, &now, compared); err != nil {
		return err
	}
	return b.rest(ctx, f, path, before.size, now)
}

// rest ships a file from a place on; at 0 it begins it anew.
func (b *batch) rest(ctx context.Context, f *os.File, path string, at int64, now shipped) error {
	for first := at == 0; first || at < now.size; first = false {
		begins := at - at%blockBytes // the sum of that block is another one now
		most := int64(chunk)
		if b.m.objects && !b.inline && now.size-at >= leastObject {
			most = maxObject + at - begins
			if next, ok := b.m.held.next(path, at); ok { // where that may be named again
				most = min(most, next-begins)
			}
		}
		piece := make([]byte, min(now.size-begins, most))
		n, err := f.ReadAt(piece, begins)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n < len(piece) { // it was cut meanwhile: the next Sync looks
			now.size, now.at = max(at, begins+int64(n)), time.Time{}
		}
		if piece = piece[:n]; begins+int64(n) < at {
			break
		}
		c, err := b.change(ctx, path, at, piece[at-begins:])
		if errors.Is(err, errNoObjects) {
			b.inline = true
			continue // a file that is to be an object is not empty
		}
		if err != nil {
			return err
		}
		now.sums = sums(now.sums[:begins/blockBytes], piece[:at-begins+int64(c.Size)])
		if piece = piece[at-begins:][:c.Size]; c.Object != "" {
			piece = nil
		}
		at += int64(c.Size)
		after := now
		after.size, after.at, after.settled, after.sums = at, time.Time{}, false, slices.Clone(now.sums)
		b.add(path, c, piece, after)
		if err := b.flushFull(ctx); err != nil {
			return err
		}
	}
	b.knows(path, now)
	return nil
}

// change is that of what a file has at a place, or of its beginning: what is large is an object, perhaps one that is there already. The error is errNoObjects if it cannot be one.
func (b *batch) change(ctx context.Context, path string, at int64, piece []byte) (change, error) {
	c := change{Path: path, At: at, Size: len(piece)}
	if !b.m.objects || b.inline || len(piece) < leastObject {
		return c, nil
	}
	if there, ok := b.m.held.at(path, at); ok && there.Size <= len(piece) && digest(piece[:there.Size]) == there.SHA256 {
		return there, nil
	}
	var err error
	c.SHA256 = digest(piece)
	c.Object, err = b.m.s.put(ctx, b.m.o.Agent, b.m.o.Epoch, piece, b.m.held.put)
	b.put += c.Size
	return c, err
}

// patches ships those of the first blocks that have changed of what the others have of a file.
func (b *batch) patches(ctx context.Context, f *os.File, path string, before shipped, now *shipped, blocks int) error {
	block := b.m.block[:]
	for i := range blocks {
		at := int64(i) * blockBytes
		n, err := f.ReadAt(block[:min(blockBytes, before.size-at)], at)
		if err != nil && err != io.EOF {
			return err
		}
		is := maphash.Bytes(seed, block[:n])
		if n == 0 || is == now.sums[i] {
			continue
		}
		now.sums[i] = is
		after := before
		after.at, after.settled, after.sums = time.Time{}, false, slices.Clone(now.sums)
		b.add(path, change{Path: path, At: at, Size: n, Patch: true}, slices.Clone(block[:n]), after)
		if err := b.flushFull(ctx); err != nil {
			return err
		}
	}
	return nil
}

// flushFull sends what was gathered if it is as much as a message has.
func (b *batch) flushFull(ctx context.Context) error {
	if b.size < chunk {
		return nil
	}
	return b.flush(ctx, false)
}

// knows notes what the others have of a file once they have all that was gathered.
func (b *batch) knows(path string, after shipped) {
	if b.after == nil {
		b.after = map[string]shipped{}
	}
	b.after[path] = after
}

// changeBytes is what a change takes beside its bytes and the path.
const changeBytes = 128

func (b *batch) add(path string, c change, piece []byte, after shipped) {
	b.knows(path, after)
	b.changes, b.pieces, b.size = append(b.changes, c), append(b.pieces, piece), b.size+len(piece)+len(path)+changeBytes
}

// log is how far the log goes that the others have once they have all that was gathered.
func (b *batch) log() (to extent) {
	for _, files := range []map[string]shipped{b.m.shipped, b.after} {
		for path, has := range files {
			if path >= to.Path && !slices.Contains(b.gone, path) && b.m.logs(path) {
				to = extent{path, has.size}
			}
		}
	}
	return to
}

// flush sends what was gathered; complete says that the files were shipped whole by then.
func (b *batch) flush(ctx context.Context, complete bool) error {
	if len(b.changes) > 0 || complete {
		before := b.m.log
		if b.m.whole || complete { // else the whole files that were shipped before are those that count
			b.m.log = b.log()
		}
		if err := b.m.publish(ctx, message{Changes: b.changes, Complete: complete}, b.pieces...); err != nil {
			b.m.log, b.m.whole = before, b.m.whole && errors.Is(err, ErrFenced) // what the others have is not known
			return err
		}
	}
	maps.Copy(b.m.shipped, b.after)
	for _, path := range b.gone {
		delete(b.m.shipped, path)
	}
	b.m.sent += int64(b.size + b.put)
	*b = batch{m: b.m, inline: b.inline}
	return nil
}
