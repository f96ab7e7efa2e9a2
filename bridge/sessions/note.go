package sessions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// maxNote bounds a note, in bytes: several times the longest one.
const maxNote = 4 << 10

// notePath is the file that says which change is under way.
func (c *Catalogue) notePath() string { return filepath.Join(c.layout.Named, ".change") }

// note says what is about to be done, after what was left undone before.
func (c *Catalogue) note(what string, ids ...string) error {
	if err := c.finishChange(); err != nil {
		return err
	}
	text := strings.Join(append([]string{what}, ids...), " ") + "\n"
	if err := errors.Join(writeSynced(c.notePath(), bytesOf([]byte(text))), safefile.SyncDir(filepath.Dir(c.notePath()))); err != nil {
		_ = os.Remove(c.notePath()) // what is not meant any more; a torn one means nothing either
		return fmt.Errorf("note a change: %w", err)
	}
	return nil
}

// Changeable says why no session can be changed, as on a full disk; nil if one
// can. It is for who has something to end before a change.
func (c *Catalogue) Changeable() error {
	release, err := c.exclusive()
	if err != nil {
		return err
	}
	defer release()
	return errors.Join(c.note("nothing"), c.finishChange())
}

// finishChange brings what belongs to sessions to where the change that is noted left
// the sessions, and takes the note away. It may be done again and again. The catalogue is held.
func (c *Catalogue) finishChange() error {
	info, err := os.Lstat(c.notePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var data []byte
	if err == nil && info.Mode().IsRegular() {
		data, err = safefile.Read(c.notePath(), maxNote)
	}
	if err != nil {
		return fmt.Errorf("finish a change: %w", err)
	}
	words := strings.Fields(string(data)) // a torn note was written before anything else
	var errs []error
	switch {
	case !strings.HasSuffix(string(data), "\n") || len(words) < 2 || valid(words[1:]...) != nil:
	case words[0] == "rename" && len(words) == 3 && !c.taken(words[1]):
		for _, part := range []string{imagesSuffix, transcript.HomeSuffix, transcript.UndoSuffix} {
			err := os.Rename(c.layout.Path(words[1], part), c.layout.Path(words[2], part))
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		errs = append(errs, c.kept.Rename(words[1], words[2]), safefile.SyncDir(c.Dir(words[1])), safefile.SyncDir(c.Dir(words[2])), c.renameCreator(words[1], words[2]))
	case words[0] == "begin" || words[0] == "delete":
		errs = append(errs, os.RemoveAll(c.layout.Path(words[1], nextSuffix)))
		if !c.taken(words[1]) {
			errs = append(errs, c.removeParts(words[1]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("finish a change: %w", err)
	}
	if err := os.RemoveAll(c.notePath()); err != nil { // all: somebody else may have put a folder there
		return fmt.Errorf("finish a change: %w", err)
	}
	return nil
}
