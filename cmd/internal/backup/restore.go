package backup

import (
	"archive/tar"
	"bufio"
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

	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

// InUseError says that there is something in the place of the new home.
type InUseError struct {
	Home     string
	Dangling bool // it is a link whose target is missing
}

func (e *InUseError) Error() string {
	if e.Dangling {
		return e.Home + " is a link whose target is missing: restore into a new directory, or remove the link first"
	}
	return e.Home + " is not empty: restore into a new directory, or move this one away first"
}

// DamagedError says that a file is no whole backup.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("it is no whole backup of nexus: %v; nothing was restored", e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Restore makes home, which must not exist or be an empty directory, of the
// backup that r reads. There is no home before all was read and found whole; on an
// error nothing is left. The error may be an *InUseError or a *DamagedError.
func Restore(ctx context.Context, r io.Reader, home string) (report Report, err error) {
	home, err = vacant(home)
	if err != nil {
		return Report{}, err
	}
	parent := filepath.Dir(home)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return Report{}, fmt.Errorf("restore %s: %w", home, err)
	}
	beside, err := os.MkdirTemp(parent, ".nexus-restore-*")
	if err != nil {
		return Report{}, fmt.Errorf("restore %s: %w", home, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(beside))
		}
	}()
	report, err = unpack(ctx, r, beside)
	if err != nil {
		return Report{}, err
	}
	if err := os.Remove(home); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty directory
		return Report{}, fmt.Errorf("restore: %w", err)
	}
	if err := os.Rename(beside, home); err != nil {
		return Report{}, fmt.Errorf("restore %s: %w", home, err)
	}
	return report, safefile.SyncDir(parent)
}

// vacant is the place of a new home, and whether there may be one.
func vacant(home string) (string, error) {
	home, err := filepath.Abs(home)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	entries, err := os.ReadDir(home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(home); err == nil { // a link to nowhere
			return "", &InUseError{Home: home, Dangling: true}
		}
		return home, nil
	case err != nil:
		return "", err
	case len(entries) > 0:
		return "", &InUseError{Home: home}
	}
	return home, nil
}

// unpack writes the files of a backup into dir, which nobody else knows.
func unpack(ctx context.Context, r io.Reader, dir string) (report Report, err error) {
	raw := bufio.NewReader(r) // which gzip reads no further than its end
	packed, err := gzip.NewReader(raw)
	if err != nil {
		return Report{}, unreadable(err)
	}
	packed.Multistream(false)
	root, err := safefile.OpenRoot(dir)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	u := &unpacker{ctx: ctx, root: root, tar: tar.NewReader(packed)}
	if err := u.all(); err != nil {
		return Report{}, err
	}
	// The checksum of gzip comes last.
	if n, err := io.CopyN(io.Discard, packed, 1); n > 0 {
		return Report{}, &DamagedError{errFollows}
	} else if !errors.Is(err, io.EOF) {
		return Report{}, unreadable(err)
	}
	switch _, err := raw.ReadByte(); {
	case err == nil:
		return Report{}, &DamagedError{errFollows}
	case !errors.Is(err, io.EOF):
		return Report{}, err
	}
	return u.report, nil
}

var errFollows = errors.New("something follows its end")

// unreadable says in the words of a reader of files what gzip or tar object to.
func unreadable(err error) *DamagedError {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		err = errors.New("it is cut off")
	case errors.Is(err, gzip.ErrHeader):
		err = errors.New("it is not packed by gzip")
	case errors.Is(err, gzip.ErrChecksum):
		err = errors.New("the checksum of gzip is not that of its content")
	}
	return &DamagedError{err}
}

type unpacker struct {
	ctx      context.Context //nolint:containedctx // of Restore
	root     *os.Root
	tar      *tar.Reader
	what     first
	previous string // the name of the newest member, "" for none
	report   Report
}

// all reads the members, up to the end of the archive.
func (u *unpacker) all() error {
	if header, err := u.next(); err != nil {
		return err
	} else if header == nil || header.Name != firstName {
		return &DamagedError{errors.New("it does not begin as one")}
	}
	if err := u.note(&u.what); err != nil {
		return err
	}
	switch {
	case u.what.Format < 1:
		return &DamagedError{errors.New("there is no format 0")}
	case u.what.Format > format:
		return &homeformat.NewerError{Path: firstName, Backup: true, Format: u.what.Format, Reads: format, Version: u.what.Version}
	}
	if err := u.membership(); err != nil {
		return err
	}
	for {
		header, err := u.next()
		switch {
		case err != nil:
			return err
		case header == nil:
			return &DamagedError{errors.New("its end is missing")}
		case header.Name == lastName:
			return u.end()
		}
		if err := u.file(header); err != nil {
			return err
		}
	}
}

// membership makes the home one of the machine whose it was: others of its cluster may have its agents.
func (u *unpacker) membership() error {
	if u.what.Machine == "" {
		return nil
	}
	if !machineForm.MatchString(u.what.Cluster) || !machineForm.MatchString(u.what.Machine) {
		return &DamagedError{errors.New("it names a machine that can be none")}
	}
	return u.root.MkdirAll(filepath.Join("cluster", u.what.Cluster, u.what.Machine, "agents"), 0o700)
}

// next is the next member; nil at the end.
func (u *unpacker) next() (*tar.Header, error) {
	if err := u.ctx.Err(); err != nil {
		return nil, err
	}
	header, err := u.tar.Next()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	switch {
	case errors.Is(err, tar.ErrHeader) && u.previous == "":
		return nil, &DamagedError{errors.New("its content is no tar archive")}
	case errors.Is(err, tar.ErrHeader):
		return nil, &DamagedError{fmt.Errorf("what follows %.256q in it is no header of a tar archive", u.previous)}
	case err != nil:
		return nil, unreadable(err)
	}
	u.previous = header.Name
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") { // its size is none of what the archive holds
			return nil, &DamagedError{fmt.Errorf("%.256q is a sparse file", header.Name)}
		}
	}
	return header, nil
}

// note reads a member of our own.
func (u *unpacker) note(v any) error {
	text, err := io.ReadAll(io.LimitReader(u.tar, maxNote))
	if err != nil {
		return unreadable(err)
	}
	if err := strict.Unmarshal(text, v, strict.IgnoreUnknown); err != nil {
		return &DamagedError{fmt.Errorf("%s: %w", u.previous, err)}
	}
	return nil
}

// end reads the last member and compares.
func (u *unpacker) end() error {
	var was last
	if err := u.note(&was); err != nil {
		return err
	}
	if is := (last{Files: u.report.Files, Bytes: u.report.Bytes}); is != was {
		return &DamagedError{fmt.Errorf("it has %d files of %d bytes, not %d of %d", is.Files, is.Bytes, was.Files, was.Bytes)}
	}
	header, err := u.next()
	if err == nil && header != nil {
		err = &DamagedError{errFollows}
	}
	return err
}

// file writes one file.
func (u *unpacker) file(header *tar.Header) error {
	u.report.Files++
	u.report.Bytes += header.Size
	switch {
	case header.Typeflag != tar.TypeReg:
		return &DamagedError{fmt.Errorf("%.256q is no regular file", header.Name)}
	case !allowed(header.Name):
		return &DamagedError{fmt.Errorf("%.256q is no file of a home", header.Name)}
	case !u.what.Keys && slices.Contains(keys, header.Name):
		return &DamagedError{fmt.Errorf("%s is in it, and it says that it has no keys", header.Name)}
	case header.Size > maxSize(header.Name):
		return &DamagedError{fmt.Errorf("%.256q has %d bytes, and may have %d", header.Name, header.Size, maxSize(header.Name))}
	case u.report.Files > maxFiles || u.report.Bytes > maxBytes:
		return &DamagedError{errors.New("it is larger than a home can be")}
	}
	if isSession(header.Name) {
		u.report.Sessions++
	}
	name := filepath.FromSlash(header.Name)
	if err := u.root.MkdirAll(filepath.FromSlash(path.Dir(header.Name)), 0o700); err != nil {
		return err
	}
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return &DamagedError{fmt.Errorf("%.256q stands twice in it", header.Name)}
	}
	if err != nil {
		return err
	}
	read := &reading{r: u.tar}
	_, err = io.Copy(file, read)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if read.err != nil {
		return unreadable(read.err)
	}
	if err != nil {
		return err
	}
	if header.Name == homeformat.Name {
		text, err := u.root.ReadFile(name)
		if err == nil {
			err = homeformat.CheckText(name, text)
		}
		if _, newer := errors.AsType[*homeformat.NewerError](err); err != nil && !newer {
			err = &DamagedError{err}
		}
		if err != nil {
			return err
		}
	}
	return u.root.Chtimes(name, header.ModTime, header.ModTime)
}

// reading remembers that reading failed, and not writing.
type reading struct {
	r   io.Reader
	err error
}

func (r *reading) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
