package safefile

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
)

// Section is the beginning of a file, read as long as a context lasts: after that the error is the cause of its end. It is used by one goroutine,
// but for ReadAt.
type Section struct {
	ctx context.Context //nolint:containedctx // of whoever reads
	*io.SectionReader
}

// Within is the first size bytes of a file, as a Section.
func Within(ctx context.Context, file io.ReaderAt, size int64) *Section {
	return &Section{ctx, io.NewSectionReader(file, 0, size)}
}

// Read implements [io.Reader].
func (s *Section) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.SectionReader.Read(p)
}

// ReadAt implements [io.ReaderAt].
func (s *Section) ReadAt(p []byte, off int64) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.SectionReader.ReadAt(p, off)
}

// Size is how many bytes a regular file has, or the regular files in a directory; 0 of what is not there, and of anything else. No link is followed.
func Size(path string) (size int64, err error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case info.Mode().IsRegular():
		return info.Size(), nil
	case !info.IsDir():
		return 0, nil
	}
	entries, err := os.ReadDir(path)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	return size, err
}
