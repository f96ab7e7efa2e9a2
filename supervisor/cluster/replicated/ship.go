package replicated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/mirror"
)

// The parts of what is saved of an agent that are shipped, as they follow its name. The home of its programs and what undo keeps are
// of its machine.
const (
	sessionPart = ".jsonl"
	imagesPart  = ".files"
	recordsPart = ".records"
)

func paths(agent string) []string {
	return []string{agent + sessionPart, agent + imagesPart, agent + recordsPart}
}

// about is what the machine that has an agent says of it to those that may take it over.
type about struct {
	// Machine is the one that says it.
	Machine string `json:"machine,omitzero"`
	// Cwd is where it works; Shared says that its machine shares that directory.
	Cwd    string `json:"cwd,omitzero"`
	Shared bool   `json:"shared,omitzero"`
	// Fresh says that it goes on elsewhere in an empty directory if it loses its own.
	Fresh bool `json:"fresh,omitzero"`
	// Creator is the agent that has created it.
	Creator string `json:"creator,omitzero"`
}

// readAbout reads what was said; nothing was if it is empty.
func readAbout(agent string, said jsontext.Value) (of about, err error) {
	if len(said) == 0 {
		return of, nil
	}
	if err := format.About.Decode(said, &of); err != nil {
		return of, fmt.Errorf("what is said of %s: %w: %w", agent, mirror.ErrUnreadable, err)
	}
	return of, nil
}

// shares reports whether this machine shares a directory.
func (s *Store) shares(dir string) bool { return shares(s.o.Shared, dir) }

func shares(all []string, dir string) bool {
	for _, shared := range all {
		if _, in := safefile.Below(shared, dir); in || shared == dir {
			return true
		}
	}
	return false
}

// take is the mirror of an agent that this machine has claimed, at its claim's epoch. a.mu is held.
func (s *Store) take(ctx context.Context, name string, a *agent) (*mirror.Mirror, error) {
	claim, ok := s.node.Owner(name)
	if !ok || claim.Machine != s.node.Self() {
		return nil, supervisor.ErrMoved
	}
	if a.mirror != nil && a.epoch == claim.Epoch {
		return a.mirror, nil
	}
	s.drop(a)
	stream, err := s.opened(ctx)
	if err != nil {
		return nil, err
	}
	if err := safefile.Mkdir(s.o.Root); err != nil {
		return nil, err
	}
	m, err := stream.Take(ctx, mirror.Options{
		Agent: name, Epoch: claim.Epoch, Root: s.o.Root, Paths: paths(name), Growing: []string{name + sessionPart, name + recordsPart}, Log: name + recordsPart,
		Scratch: filepath.Join(s.o.Dir, "scratch"), MaxBytes: supervisor.MaxSaved,
	})
	if err == nil {
		a.mirror, a.epoch, a.said = m, claim.Epoch, about{}
	}
	return m, err
}

// drop forgets the mirror of an agent. a.mu is held.
func (s *Store) drop(a *agent) {
	if a.mirror != nil {
		a.mirror.Close()
	}
	a.mirror = nil
}

// ship returns once a majority has what the files of an agent have now. After an error no prompt is accepted before that succeeds. a.mu is held.
func (s *Store) ship(ctx context.Context, name string, a *agent) error {
	list, mark := a.list.Load(), 0
	if list != nil {
		mark = list.Mark()
	}
	err := s.shipFiles(ctx, name, a)
	switch {
	case err != nil:
		a.list.Store(nil)
	case list != nil:
		list.Shipped(mark)
	}
	return err
}

func (s *Store) shipFiles(ctx context.Context, name string, a *agent) error {
	if err := s.prepare(ctx, name, a); err != nil {
		return err
	}
	m, err := s.take(ctx, name, a)
	if err != nil {
		return err
	}
	place := s.o.Dirs.Place(name)
	of := about{Machine: s.node.Self(), Cwd: place.Cwd, Shared: s.shares(place.Cwd), Fresh: place.Fresh, Creator: place.Creator}
	if a.said != of {
		if _, err := readAbout(name, m.Said()); err != nil { // it stays
			return err
		}
		said, err := json.Marshal(of)
		if err != nil {
			return err
		}
		if err := m.About(said); err != nil {
			return err
		}
		a.said = of
	}
	m.UseObjects(all(s.node, func(m cluster.Machine) bool { return m.Objects }))
	return m.Sync(ctx)
}

// look is what the files of an agent look like; "" if there are none. They look otherwise once this machine shares other directories, as
// that is shipped with them.
func (s *Store) look(name string) (string, error) {
	looks, err := look(s.o.Root, name)
	if looks != "" {
		looks += fmt.Sprintf(" %q", s.o.Shared)
	}
	return looks, err
}

// settle ships an agent that does not run, and notes what its files were. a.mu is held.
func (s *Store) settle(ctx context.Context, name string, a *agent) error {
	defer s.drop(a)
	looks, err := s.look(name)
	if err != nil {
		return err
	}
	if err := s.ship(ctx, name, a); err != nil {
		return err
	}
	return s.notes.write(name, s.notes.get(name).shipped(a.epoch, looks))
}

// Ship ships an agent that this machine has, and returns once a majority has what its files have now.
func (s *Store) Ship(ctx context.Context, name string) error {
	if isTemp(name) {
		return nil
	}
	a := s.of(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, acceptPatience)
	defer cancel()
	if a.open.Load() {
		return s.reason(s.ship(ctx, name, a))
	}
	return s.reason(s.settle(ctx, name, a))
}

// shipChanged ships the agents that this machine has once their files have changed, until ctx ends.
func (s *Store) shipChanged(ctx context.Context) {
	if s.node.Agreed(ctx) != nil {
		return
	}
	// Early: the machine that leads the others, which would be asked for it, may be the one that is lost.
	if _, err := s.opened(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("what agents save is not shipped", zap.Error(err)) // it is tried again for each
	}
	for {
		s.shipAll(ctx)
		if ratelimit.Sleep(ctx, shipEvery) != nil {
			return
		}
	}
}

func (s *Store) shipAll(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	places := make(chan struct{}, shipping)
	for _, name := range s.node.Owned() {
		if isTemp(name) {
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		work.Go(func() {
			defer func() { <-places }()
			if err := s.shipSaved(ctx, name); err != nil && ctx.Err() == nil {
				s.log.Info("what is saved of an agent is on this machine alone; it is tried again", zap.String("agent", name), zap.Error(err))
			}
		})
	}
}

// shipSaved ships an agent if its files have changed.
func (s *Store) shipSaved(ctx context.Context, name string) error {
	a := s.of(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	claim, ok := s.node.Owner(name)
	if !ok || claim.Machine != s.node.Self() {
		return nil
	}
	if a.open.Load() {
		s.lists.renew(ctx, name, a)
	}
	looks, err := s.look(name)
	noted := s.notes.get(name)
	if err != nil || a.open.Load() && looks == a.looks || noted.Epoch == claim.Epoch && (looks == noted.Files || looks == "") {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, acceptPatience)
	defer cancel()
	if a.open.Load() {
		if err = s.ship(ctx, name, a); err == nil {
			a.looks = looks
		}
	} else {
		err = s.settle(ctx, name, a)
	}
	if err != nil {
		return fmt.Errorf("ship %s: %w", name, err)
	}
	return nil
}

// Saved says what became of the agents in a Save.
type Saved struct {
	Agents  int      // how many are laid out
	Without []string // those of which nothing was shipped yet, sorted
	// Lost are those of which what was shipped cannot be read, with the reasons. Nothing of them is laid out.
	Lost map[string]error
}

// Save lays out what the machines have of all agents below a directory, of each as it was at one moment. Check says whether there is a session
// in what was laid out of one, and why it cannot be used; then it is removed again. Scratch is a directory in its file system that is made when it is needed. An error is of the cluster or the disk.
func (s *Store) Save(ctx context.Context, dir, scratch string, check func(agent string) (there bool, err error)) (saved Saved, err error) {
	if err := s.node.Check(); err != nil {
		return saved, err
	}
	saved.Lost = map[string]error{}
	for name := range s.node.Claims() {
		if isTemp(name) {
			continue
		}
		there, err := s.SaveOne(ctx, name, dir, scratch)
		if err != nil && !errors.Is(err, mirror.ErrUnreadable) {
			return saved, err
		}
		if there {
			there, err = check(name)
		}
		switch {
		case err != nil:
			saved.Lost[name] = err
		case there:
			saved.Agents++
			continue
		default:
			saved.Without = append(saved.Without, name)
		}
		for _, path := range paths(name) {
			if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
				return saved, err
			}
		}
	}
	slices.Sort(saved.Without)
	return saved, nil
}

// SaveOne is Save of one agent; there is false if nothing was shipped of it.
func (s *Store) SaveOne(ctx context.Context, name, dir, scratch string) (there bool, err error) {
	stream, err := s.opened(ctx)
	if err == nil {
		err = stream.Save(ctx, mirror.Options{Agent: name, Root: dir, Paths: paths(name), Scratch: scratch})
	}
	if errors.Is(err, mirror.ErrNothing) {
		return false, nil
	}
	return err == nil, err
}
