package file

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nexus.internal/child/snapshot"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

// errChanged says that somebody else has been at a file since the change that is to be undone.
var errChanged = errors.New("something else has changed it since")

// errMovedIn says that a file would leave the space in which programs could have changed it.
var errMovedIn = errors.New("it came from where the agent may not write without being asked: look at it, and move it back")

// Rewriter says what may be touched while a change is taken back; unasked is where the agent
// writes without asking. The error says why the change stays.
type Rewriter interface {
	Rewrite(e *snapshot.Entry) (s, unasked Space, err error)
}

// Undo takes back what the tools changed in a turn, the last change first, as far as the spaces
// let them write there now. A file that is not as they left it stays as it is, as does one that was moved
// here from outside of unasked. restored are the paths that are as before the turn, left the others; both are sorted.
func Undo(ctx context.Context, store *snapshot.Store, r Rewriter, turn time.Time) (restored []string, left []protocol.FileLeft) {
	reasons := map[string]string{} // by path; "" is restored
	for _, e := range slices.Backward(store.Turn(turn)) {
		paths := []string{e.Path}
		if e.From != "" {
			paths = append(paths, e.From)
		}
		reason := ""
		if !e.Undone {
			s, unasked, err := r.Rewrite(e)
			if s.Snapshots = nil; err == nil {
				err = s.restore(ctx, unasked, store, e)
			}
			if err != nil {
				reason = bare(err).Error()
			}
		}
		for _, path := range paths {
			if reasons[path] == "" {
				reasons[path] = reason
			}
		}
	}
	for path, reason := range reasons {
		if reason == "" {
			restored = append(restored, path)
		} else {
			left = append(left, protocol.FileLeft{Path: path, Reason: reason})
		}
	}
	slices.Sort(restored)
	slices.SortFunc(left, func(a, b protocol.FileLeft) int { return strings.Compare(a.Path, b.Path) })
	return restored, left
}

// restore takes one change back.
func (s Space) restore(ctx context.Context, unasked Space, store *snapshot.Store, e *snapshot.Entry) error {
	p, err := s.again(e.Path)
	if err != nil {
		return err
	}
	defer p.close()
	switch now, err := p.state(); {
	case err != nil:
		return err
	case now == e.Was.State && (e.From == "" || s.stateOf(e.From) == e.Is): // it was killed before it made the change
		store.Done(e, now)
		return nil
	case now != e.Is && now == snapshot.State{}:
		return errors.New("it is gone: something else has deleted it since")
	case now != e.Is:
		return errChanged
	case e.Lost != "":
		return errors.New(e.Lost)
	}
	if e.From != "" {
		back, err := unasked.again(e.From)
		if err != nil {
			return errMovedIn
		}
		back.close()
		if err := s.moveBack(ctx, p, e.From); err != nil {
			return err
		}
	}
	if err := p.putBack(ctx, store, e); err != nil {
		return err
	}
	now, err := p.state()
	if err != nil {
		return err
	}
	store.Done(e, now)
	for _, dir := range slices.Backward(e.Made) {
		s.removeEmpty(ctx, dir)
	}
	return nil
}

// again finds a place anew, where no link may lead elsewhere now.
func (s Space) again(path string) (*place, error) {
	p, err := s.find("undo", path, true)
	if err == nil && p.path != path {
		p.close()
		return nil, errors.New("a symbolic link leads elsewhere now")
	}
	return p, err
}

// state is that of what is at the place; the zero State if nothing is, or what no change of a
// tool leaves.
func (p *place) state() (snapshot.State, error) {
	dir, err := safefile.OpenRootIn(p.root, filepath.Dir(p.name))
	if errors.Is(err, fs.ErrNotExist) {
		return snapshot.State{}, nil
	}
	if err != nil {
		return snapshot.State{}, explain("undo", p.asked, err)
	}
	defer func() { _ = dir.Close() }() // nothing waits to be written
	info, err := dir.Lstat(p.base())
	if errors.Is(err, fs.ErrNotExist) {
		return snapshot.State{}, nil
	}
	if err != nil {
		return snapshot.State{}, explain("undo", p.asked, err)
	}
	return snapshot.StateOf(info), nil
}

// stateOf is the state of a place anew; the zero State if it cannot be told.
func (s Space) stateOf(path string) snapshot.State {
	p, err := s.again(path)
	if err != nil {
		return snapshot.State{}
	}
	defer p.close()
	state, err := p.state()
	if err != nil {
		return snapshot.State{}
	}
	return state
}

// moveBack moves what is at the place to where it came from.
func (s Space) moveBack(ctx context.Context, p *place, from string) error {
	to, err := s.again(from)
	if err != nil {
		return err
	}
	defer to.close()
	_, err = carryOut(ctx, &change{attempt: "undo", at: to, from: p, arrives: true})
	return err
}

// putBack makes what is at the place what it was, once a file that was moved there is gone.
func (p *place) putBack(ctx context.Context, store *snapshot.Store, e *snapshot.Entry) error {
	c := &change{attempt: "undo", at: p, mode: mode{perm: e.Was.Perm}}
	switch {
	case e.Was.Dir:
		dir, err := p.directory(ctx, p.name)
		if err == nil {
			err = errors.Join(dir.Chmod(".", e.Was.Perm), dir.Close())
		}
		return err
	case e.Was == snapshot.Past{} && e.From != "": // it has been moved back
		return nil
	case e.Was != snapshot.Past{}:
		content, err := store.Content(e)
		if err != nil {
			return errors.New("what was in it is not kept any more")
		}
		defer content.Close()
		c.content = content
	}
	_, err := carryOut(ctx, c)
	return err
}

// removeEmpty removes a directory that the tools had made, unless something is in it, or it may
// not be.
func (s Space) removeEmpty(ctx context.Context, dir string) {
	if p, err := s.again(dir); err == nil {
		defer p.close()
		if info, err := p.root.Lstat(p.name); err == nil && info.IsDir() {
			_, _ = carryOut(ctx, &change{attempt: "undo", at: p})
		}
	}
}

// keep keeps what is at the place of a change that is about to be made.
func (c *change) keep() {
	store := c.at.space.Snapshots
	if store == nil {
		return
	}
	e := snapshot.Entry{Path: c.at.path, Tool: c.at.space.Tool}
	top := strings.TrimSuffix(c.at.path, c.at.name)
	for _, name := range c.at.made {
		e.Made = append(e.Made, filepath.Join(top, name))
	}
	var then fs.FileInfo // what will be at the place
	var err error
	switch {
	case c.from != nil:
		e.From = c.from.path
		then, err = c.fromDir.Lstat(c.from.base())
	case c.content != nil:
		then, err = c.dir.Lstat(c.temporary)
	}
	if err == nil && then != nil {
		e.Is = snapshot.StateOf(then)
	}
	if c.old == nil {
		c.kept = store.Keep(e, nil)
		return
	}
	e.Was = snapshot.Past{State: snapshot.StateOf(c.old), Perm: c.old.Mode().Perm(), Dir: c.old.IsDir()}
	if e.Was.Dir {
		c.kept = store.Keep(e, nil)
		return
	}
	f, _, err := c.at.regular(c.attempt)
	if err != nil {
		e.Lost = "what was in it could not be read"
		c.kept = store.Keep(e, nil)
		return
	}
	defer f.Close()
	c.kept = store.Keep(e, f)
}
