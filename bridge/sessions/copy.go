package sessions

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"nexus.internal/protocol/safefile"
)

// writeSynced writes a file that is on the disk when it returns, in the place of
// whatever stands there.
func writeSynced(path string, write func(io.Writer) error) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	f, err := safefile.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Sync(), f.Close())
}

func bytesOf(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// copyAll copies a file, or a folder of files. What is not there is no error;
// links and the like are left out.
func copyAll(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not there, or gone meanwhile
		}
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch {
		case d.IsDir():
			return safefile.Mkdir(target)
		case d.Type().IsRegular():
			return copyFile(path, target)
		}
		return nil
	})
}

func copyFile(from, to string) error {
	in, err := safefile.Open(from, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	return writeSynced(to, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}

// renameUnlessThere is for systems that cannot look and rename in one: who makes
// the file in between loses it.
func renameUnlessThere(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return fs.ErrExist
	}
	return os.Rename(from, to)
}
