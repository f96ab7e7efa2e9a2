package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/notes"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// Options say what a backup has.
type Options struct {
	// Version is that of the program.
	Version string
	// NoKeys leaves out the hashes of the keys that create_key made, so that they
	// do not open the server of the new home.
	NoKeys bool
	// Narrowed are the permissions of agents whose sessions say more, by agent: those
	// that a server that runs could not save. A backup adds them to the sessions.
	Narrowed map[string]protocol.Permissions
}

// Write writes a backup of the home to w. A server may work in the home meanwhile,
// and does not wait for w. On an error, what was written is worth nothing.
func Write(ctx context.Context, w io.Writer, home string, o Options) (Report, error) {
	packed := gzip.NewWriter(w)
	b := &writer{ctx: ctx, home: home, tar: tar.NewWriter(packed), now: time.Now().UTC(), narrowed: o.Narrowed}
	var err error
	if b.of, err = os.Stat(home); err == nil {
		err = b.all(o)
	}
	if err == nil {
		err = errors.Join(b.tar.Close(), packed.Close())
	}
	if err != nil {
		return Report{}, fmt.Errorf("back up %s: %w", home, err)
	}
	return b.report, nil
}

type writer struct {
	ctx    context.Context //nolint:containedctx // of Write
	home   string
	of     fs.FileInfo // home
	tar    *tar.Writer
	now    time.Time
	report Report

	narrowed map[string]protocol.Permissions // by agent
}

// all writes the members. The audit log and the plans come before the sessions: a
// plan must not say of a task that it is done if its agent does not know of it.
func (b *writer) all(o Options) error {
	entries, err := os.ReadDir(b.home)
	if err != nil {
		return err
	}
	known := slices.Concat(written, logs, keys, []string{homeformat.Name, notes.FileName, "sessions", "plans"})
	isKnown := func(entry fs.DirEntry) bool { return slices.Contains(known, entry.Name()) }
	if !slices.ContainsFunc(entries, isKnown) {
		return errors.New("it is no home of nexus: it has no sessions, no configuration and no logs (--home names the home)")
	}
	what := first{Format: format, Version: o.Version, Created: b.now, Keys: !o.NoKeys}
	what.Cluster, what.Machine = config.Home(b.home).Machine()
	if err := b.note(firstName, what); err != nil {
		return err
	}
	// Restore refuses a later format before it reads on.
	errs := []error{b.opened(homeformat.Name, openPlain), b.logs(), b.opened(notes.FileName, openPlain)}
	for _, name := range written {
		errs = append(errs, safefile.CheckLink(filepath.Join(b.home, name)), b.opened(name, safefile.OpenLinked))
	}
	if !o.NoKeys {
		for _, name := range keys {
			errs = append(errs, b.opened(name, openPlain))
		}
	}
	if err := errors.Join(append(errs, b.plans())...); err != nil {
		return err
	}
	b.report.Sessions, err = sessions.New(b.home, nil).Snapshot(b.add)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); !isKnown(entry) && !passing.MatchString(name) {
			b.report.LeftOut = append(b.report.LeftOut, name)
		}
	}
	saved, err := os.ReadDir(filepath.Join(b.home, "sessions"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range saved {
		if !ofSession(entry) {
			b.report.LeftOut = append(b.report.LeftOut, "sessions/"+entry.Name())
		}
	}
	return b.note(lastName, last{Files: b.report.Files, Bytes: b.report.Bytes})
}

// logs writes the audit log, which may be moved on meanwhile: each file once.
func (b *writer) logs() error {
	var before fs.FileInfo
	for _, name := range logs {
		err := b.opened(name, func(path string) (*os.File, error) {
			file, err := openPlain(path)
			if err != nil {
				return nil, err
			}
			info, err := file.Stat()
			if err != nil || before != nil && os.SameFile(info, before) {
				return nil, errors.Join(err, fs.ErrNotExist, file.Close())
			}
			before = info
			return file, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *writer) plans() (failed error) {
	for _, dir := range []string{"plans", "plans/tasks"} {
		entries, err := os.ReadDir(filepath.Join(b.home, filepath.FromSlash(dir)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, entry := range entries {
			if name := dir + "/" + entry.Name(); entry.Type().IsRegular() && allowed(name) {
				err = errors.Join(err, b.opened(name, openPlain))
			}
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

func openPlain(path string) (*os.File, error) { return safefile.Open(path, os.O_RDONLY) }

// opened writes a file of the home, if it is there.
func (b *writer) opened(name string, open func(path string) (*os.File, error)) error {
	file, err := open(filepath.Join(b.home, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return b.add(sessions.File{Path: name, Size: info.Size(), Modified: info.ModTime(), ReaderAt: file})
}

// check refuses a file of the home of a user who is neither ours nor root, and to whom the file does not belong either: that user may have put a link in the
// place of it, or of a directory on the way, to what our user alone may read. What stands in the home itself, and is no link, was put there.
func (b *writer) check(f sessions.File) error {
	file, ok := f.ReaderAt.(*os.File)
	if !ok || safefile.OursOrRoots(b.of) {
		return nil
	}
	info, err := file.Stat()
	if err != nil || safefile.SameOwner(info, b.of) {
		return err
	}
	if path.Dir(f.Path) == "." {
		if there, err := os.Lstat(filepath.Join(b.home, f.Path)); err == nil && os.SameFile(info, there) {
			return nil
		}
	}
	return fmt.Errorf("%s is a link, or in one, to what does not belong to the user whose home this is: remove the link, or %s", f.Path, safefile.AsOwner(b.of))
}

// add writes one file, without a last line that is not whole yet.
func (b *writer) add(f sessions.File) error {
	if !allowed(f.Path) {
		return nil // what somebody else put among the files of a session
	}
	if err := b.check(f); err != nil {
		return err
	}
	if f.Size > maxSize(f.Path) {
		return fmt.Errorf("%s has %d bytes, and may have %d", f.Path, f.Size, maxSize(f.Path))
	}
	if ofLines(f.Path) {
		size, err := wholeLines(f, f.Size)
		if err != nil {
			return fmt.Errorf("read %s: %w", f.Path, err)
		}
		f.Size = size
	}
	added, err := b.narrowing(f)
	if err != nil {
		return err
	}
	size := f.Size + int64(len(added))
	if err := b.member(f.Path, f.Modified, size, io.MultiReader(io.NewSectionReader(f, 0, f.Size), bytes.NewReader(added))); err != nil {
		return err
	}
	b.report.Files++
	b.report.Bytes += size
	return nil
}

// narrowing is the line that a session gets at its end, "" for none.
func (b *writer) narrowing(f sessions.File) ([]byte, error) {
	if !isSession(f.Path) || f.Size == 0 {
		return nil, nil
	}
	narrowed, ok := b.narrowed[strings.TrimSuffix(path.Base(f.Path), ".jsonl")]
	if !ok {
		return nil, nil
	}
	line, err := transcript.Append(nil, transcript.Settings{Permissions: &narrowed, Granted: &narrowed, At: b.now})
	if err != nil {
		return nil, fmt.Errorf("add to %s: %w", f.Path, err)
	}
	return append(line, '\n'), nil
}

// note writes a member of our own.
func (b *writer) note(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	return b.member(name, b.now, int64(len(text)), bytes.NewReader(text))
}

func (b *writer) member(name string, modified time.Time, size int64, r io.Reader) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: modified, Format: tar.FormatPAX}
	if err := b.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	n, err := io.Copy(b.tar, r)
	if err == nil && n < size {
		err = errors.New("it became shorter meanwhile: try again")
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// wholeLines is how much of the first size bytes ends with a newline.
func wholeLines(r io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for size > 0 {
		n := min(size, int64(len(buf)))
		if _, err := r.ReadAt(buf[:n], size-n); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return size - n + int64(i) + 1, nil
		}
		size -= n
	}
	return 0, nil
}
