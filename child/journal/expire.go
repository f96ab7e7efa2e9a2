package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// What one call of Expire does at most, so that it delays no start for long.
const (
	maxLooked  = 10_000 // files
	maxExpired = 100    // sessions
)

// Expire removes unnamed sessions of dir that were last written to before a time,
// with their images, and returns how many. It removes at most 100 in a call, of 10,000
// that it looks at, which differ from call to call. It leaves a session that a process
// has open, that an agent of a server has gone on with, or that it cannot read. While
// another process changes the sessions of dir it does nothing.
func Expire(dir string, before time.Time) (removed int, err error) {
	changing, err := safefile.Open(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return 0, fmt.Errorf("remove old sessions: %w", err)
	}
	defer safefile.Release(changing)
	if err := safefile.Lock(changing); errors.Is(err, safefile.ErrLocked) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("remove old sessions: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("remove old sessions: %w", err)
	}
	files := make([]string, len(entries))
	for i, entry := range entries {
		files[i] = entry.Name()
	}
	names := slices.Collect(maps.Keys(transcript.MaybeUnnamed(files)))
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var errs []error
	for _, name := range names[:min(len(names), maxLooked)] {
		gone, err := expire(filepath.Join(dir, name+suffix), name, before)
		errs = append(errs, err)
		if gone {
			removed++
		}
		if removed == maxExpired {
			break
		}
	}
	if err := errors.Join(errs...); err != nil {
		return removed, fmt.Errorf("remove old sessions: %w", err)
	}
	return removed, nil
}

// expire removes one session, if it is old, unnamed and nobody's. The images go
// first: a session without its images is found again, images without a session are not.
func expire(path, name string, before time.Time) (gone bool, err error) {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || !info.ModTime().Before(before) {
		return false, nil
	}
	f, err := safefile.Open(path, os.O_RDWR)
	if err != nil {
		return false, nil // it is somebody's
	}
	defer safefile.Release(f)
	if safefile.Lock(f) != nil {
		return false, nil
	}
	info, err := f.Stat() // again, now that nobody writes
	if err != nil || !info.ModTime().Before(before) || !transcript.Unnamed(name, f) {
		return false, nil
	}
	if there, err := safefile.At(path, f); err != nil || !there {
		return false, nil
	}
	beside := filepath.Join(filepath.Dir(path), name)
	if err := errors.Join(os.RemoveAll(beside+".files"), os.RemoveAll(beside+transcript.UndoSuffix), safefile.RemoveBriefly(beside+transcript.HomeSuffix)); err != nil {
		return false, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, nil
}
