package sessions

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// Created are the sessions of the agents that the one of the session id began.
// They are in the order of their names; those that cannot be read are not among them.
func (c *Catalogue) Created(id string) ([]string, error) { return c.createdBy(id, id) }

// createdBy is Created for a session that had the name old and is at id now.
func (c *Catalogue) createdBy(old, id string) (created []string, err error) {
	creator, err := c.Summary(id)
	if err != nil {
		return nil, err
	}
	for _, dir := range []*directory{&c.named, &c.temp} {
		all, err := dir.items(c)
		if err != nil {
			return nil, fmt.Errorf("look for what %s created: %w", old, err)
		}
		for _, e := range all {
			s, err := c.Summary(e.name)
			// What is older was created by an earlier one of that name.
			if err == nil && protocol.Value(s.Settings.ParentAgentID) == old && !creator.Header.CreatedAt.After(s.Header.CreatedAt) {
				created = append(created, e.name)
			}
		}
	}
	slices.Sort(created)
	return created, nil
}

// renameCreator has the sessions of the agents that old created say that it was name,
// which is what old is called now. It may be done again. Those that are gone,
// damaged or open elsewhere are left as they are. The catalogue is held.
func (c *Catalogue) renameCreator(old, name string) error {
	created, err := c.createdBy(old, name)
	errs := []error{err}
	for _, id := range created {
		errs = append(errs, c.amend(id, func(io.ReadSeeker) ([]transcript.Record, error) {
			return []transcript.Record{transcript.Settings{ParentAgentID: &name, At: time.Now().UTC()}}, nil
		}))
	}
	errs = slices.DeleteFunc(errs, func(err error) bool {
		_, damaged := errors.AsType[*transcript.LineError](err)
		_, later := errors.AsType[*transcript.VersionError](err)
		return damaged || later || errors.Is(err, ErrNotFound) || errors.Is(err, ErrInUse)
	})
	return errors.Join(errs...)
}

// amend adds the records that make returns for a session, which no process has open, in the place of a
// torn write, and returns once they are on the disk. None are added, or all.
func (c *Catalogue) amend(id string, make func(io.ReadSeeker) ([]transcript.Record, error)) (err error) {
	held, err := c.hold(id)
	if err != nil {
		return err
	}
	defer safefile.Release(held)
	records, err := make(held)
	var lines []byte
	for _, r := range records {
		if err == nil {
			lines, err = transcript.Append(lines, r)
			lines = append(lines, '\n')
		}
	}
	if err != nil {
		return &Error{Name: id, Err: err}
	}
	f, err := safefile.Open(c.Path(id), os.O_WRONLY)
	if err != nil {
		return &Error{Name: id, Err: err}
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := held.Stat()
	if other, failed := f.Stat(); err != nil || failed != nil || !os.SameFile(info, other) {
		return &Error{Name: id, Err: errors.Join(err, failed, ErrNotFound)}
	}
	end, err := wholeLines(held, info.Size())
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.WriteAt(lines, end)
	}
	if err = errors.Join(err, f.Sync()); err != nil {
		return &Error{Name: id, Err: err}
	}
	return nil
}

// wholeLines is how many bytes of a file end with its last newline.
func wholeLines(f *os.File, size int64) (int64, error) {
	block := make([]byte, 64<<10)
	for size > 0 {
		from := max(0, size-int64(len(block)))
		n, err := f.ReadAt(block[:size-from], from)
		if err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
		size = from
	}
	return 0, nil
}
