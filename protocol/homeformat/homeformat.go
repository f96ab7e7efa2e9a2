// Package homeformat is the version that a home has as a whole, in HOME/format.json (SPEC §2.1):
//
//	err := homeformat.Check(home)         // each program, before it reads or writes there
//	err = homeformat.Mark(home, version)  // the server that holds the home
//
// Files of a home have versions of their own besides (sessions, records, backups). The version of
// the home says what those cannot: which files there are, and what follows from their names. It
// is raised by a change that an earlier program would not notice, and could spoil.
//
// The functions are safe for concurrent use.
package homeformat

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

const (
	// Name is that of the file in the home.
	Name = "format.json"
	// Current is the format that this program reads and writes. A home without the file has format 1.
	Current = 1
	// MaxSize is how large the file may be, in bytes.
	MaxSize = 4 << 10
)

// content is what the file says. Every later format has these two members with this meaning.
type content struct {
	Format  uint32 `json:"format"`
	Version string `json:"version" wire:"default"` // of the program that brought the home to the format
}

// NewerError says that a later program has used a home, or written a backup of one.
type NewerError struct {
	Path    string // of the file that says so
	Backup  bool   // it is about a backup
	Format  uint32
	Reads   uint32 // the latest format that this program reads
	Version string // of that program; "" if the file does not say it
}

func (e *NewerError) Error() string {
	what, by, programs := "home", "", "programs of its version"
	if e.Backup {
		what = "backup"
	}
	if e.Version != "" {
		by, programs = fmt.Sprintf(", as nexus %.64q left it", e.Version), "programs of that version"
	}
	return fmt.Sprintf("%s says that this %s has format %d%s, and this program reads formats up to %d: use %s or newer ones, "+
		"or restore a backup from before the update into another home; nothing was changed", e.Path, what, e.Format, by, e.Reads, programs)
}

// Check refuses a home whose format is later than ours, by a *NewerError, and one whose format
// cannot be read. It changes nothing. A home that is not there is no error.
func Check(home string) error {
	_, err := read(home)
	return err
}

// CheckText is Check for the file at path, which holds data.
func CheckText(path string, data []byte) error {
	_, err := parse(path, data)
	return err
}

// Mark notes in a home without the file that it has our format. The caller, a program of that
// version, is the only server of the home. It fails as Check does.
func Mark(home, version string) error {
	format, err := read(home)
	if err != nil || format != 0 {
		return err
	}
	text, err := json.Marshal(content{Current, version})
	if err == nil {
		err = safefile.Replace(filepath.Join(home, Name), append(text, '\n'), true)
	}
	if err != nil {
		return fmt.Errorf("note the format of %s: %w", home, err)
	}
	return nil
}

// read returns what the file of the home says; 0 if there is none.
func read(home string) (format uint32, err error) {
	path := filepath.Join(home, Name)
	data, err := safefile.Read(path, MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("which format the home has: %w", err)
	}
	return parse(path, data)
}

func parse(path string, data []byte) (format uint32, err error) {
	var c content
	if err := strict.Unmarshal(data, &c, strict.IgnoreUnknown); err != nil {
		return 0, unknown(path, err)
	}
	switch {
	case c.Format == 0:
		return 0, unknown(path, errors.New("there is no format 0"))
	case c.Format > Current:
		return 0, &NewerError{Path: path, Format: c.Format, Reads: Current, Version: c.Version}
	}
	return c.Format, nil
}

func unknown(path string, err error) error {
	return fmt.Errorf("%s does not say which format the home has: %w; if no newer nexus has used this home, remove that file", path, err)
}
