package replicated

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/mirror"
)

// rankDelay is how much longer each machine waits for the one that is to take an agent over before it.
const rankDelay = 2 * time.Second

// claimPatience bounds the wait for a claim: the machine that leads the others may just have gone, and then it is asked again.
const claimPatience = 2 * time.Second

// orphan is an agent whose machine is gone.
type orphan struct {
	claim cluster.Claim // of that machine
	since time.Time
	asked bool // what is said of it was read
	moves bool // it may be taken over here
}

// Prepare sees that the files of an agent that this machine has claimed are those that were shipped last. Its records are not open.
func (s *Store) Prepare(ctx context.Context, name string) error {
	if isTemp(name) {
		return nil
	}
	a := s.of(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, acceptPatience)
	defer cancel()
	return reason(s.prepare(ctx, name, a))
}

// prepare is Prepare; a.mu is held.
func (s *Store) prepare(ctx context.Context, name string, a *agent) error {
	claim, ok := s.node.Owner(name)
	noted := s.notes.get(name)
	if ok && claim.Machine == s.node.Self() && noted.Epoch == claim.Epoch {
		return nil
	}
	if a.open.Load() { // another machine had it meanwhile
		return supervisor.ErrMoved
	}
	m, err := s.take(ctx, name, a) // which looks whether the agent is ours
	if err != nil {
		return err
	}
	// Nobody has shipped it since this machine has, or ever: what is here goes on.
	if before := m.Before(); before > noted.Epoch {
		if err := s.fetch(ctx, name, m, noted); err != nil {
			s.drop(a) // it is taken anew then
			return err
		}
	}
	return s.notes.write(name, note{Epoch: a.epoch})
}

// fetch lays out the files of an agent as another machine has shipped them.
func (s *Store) fetch(ctx context.Context, name string, m *mirror.Mirror, noted note) error {
	err := m.Restore(ctx, func() error { return s.setAside(name) })
	switch {
	case err == nil:
		s.log.Info("an agent goes on here", zap.String("agent", name))
	case errors.Is(err, mirror.ErrNothing) && noted.Epoch > 0: // it was removed elsewhere
		return s.setAside(name)
	case errors.Is(err, mirror.ErrNothing): // it was saved here before anybody shipped it
		return nil
	}
	return err
}

// aside is where the files of an agent are kept that are of an earlier time than those which other machines have: the last ones.
func (s *Store) aside(name string) string { return filepath.Join(s.o.Dir, "aside", encoded(name)) }

// setAside moves the files of an agent away, if there are any.
func (s *Store) setAside(name string) error {
	looks, err := look(s.o.Root, name)
	if err != nil || looks == "" {
		return err
	}
	aside := s.aside(name)
	if err := errors.Join(os.RemoveAll(aside), os.MkdirAll(aside, 0o700)); err != nil {
		return err
	}
	for _, path := range paths(name) {
		err := os.Rename(filepath.Join(s.o.Root, path), filepath.Join(aside, path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.log.Info("what was saved here of an agent is older than what other machines have, and set aside", zap.String("agent", name), zap.String("dir", aside))
	return nil
}

// Taken are the agents whose files are here and that another machine has claimed since.
func (s *Store) Taken() (agents []string) {
	for name, noted := range s.notes.all() {
		claim, ok := s.node.Owner(name)
		if ok && claim.Epoch > noted.Epoch && (claim.Machine != s.node.Self() || s.of(name).open.Load()) {
			agents = append(agents, name)
		}
	}
	return agents
}

// GiveUp sets aside the files of an agent that another machine has claimed. Its records are not open.
func (s *Store) GiveUp(name string) error {
	a := s.of(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	s.drop(a)
	if err := s.setAside(name); err != nil {
		return err
	}
	return s.notes.remove(name)
}

// Forget removes what the machines have of an agent that is no more, before its claim is given up.
func (s *Store) Forget(ctx context.Context, name string) error {
	if isTemp(name) {
		return nil
	}
	a := s.of(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	defer s.drop(a)
	ctx, cancel := context.WithTimeout(ctx, acceptPatience)
	defer cancel()
	m, err := s.take(ctx, name, a)
	if err == nil {
		err = m.Remove(ctx)
	}
	if err != nil {
		return reason(err)
	}
	return s.notes.remove(name)
}

// Orphans are the agents of machines that are gone which this one is to take over now: those that work where both share the
// directory. Of the machines that could, each waits for those before it. It is called by one goroutine.
func (s *Store) Orphans(ctx context.Context) (agents []string) {
	claims, gone := s.node.Claims(), map[string]bool{}
	for _, claim := range claims {
		if _, known := gone[claim.Machine]; !known {
			gone[claim.Machine] = s.node.Gone(claim.Machine)
		}
	}
	maps.DeleteFunc(claims, func(name string, claim cluster.Claim) bool { return isTemp(name) || !gone[claim.Machine] })
	maps.DeleteFunc(s.orphans, func(name string, o *orphan) bool { return claims[name] != o.claim })
	for name, claim := range claims {
		if s.orphans[name] == nil {
			s.orphans[name] = &orphan{claim: claim, since: time.Now()}
		}
		takes, err := s.takes(ctx, name, s.orphans[name])
		if err != nil { // nor would the next one be known
			s.log.Info("which agents may be taken over is not known yet", zap.Error(err))
			break
		}
		if takes {
			agents = append(agents, name)
		}
	}
	return agents
}

// takes reports whether this machine is to take over an agent now.
func (s *Store) takes(ctx context.Context, name string, o *orphan) (takes bool, err error) {
	if time.Since(o.since) < time.Duration(s.rank(name))*rankDelay {
		return false, nil
	}
	if !o.asked {
		var cwd string
		if o.moves, cwd, err = s.movable(ctx, name); err != nil {
			return false, err
		}
		if o.asked = true; !o.moves {
			s.log.Info("an agent waits for its machine, as it works in a directory that is not shared", zap.String("agent", name), zap.String("cwd", cwd))
		}
	}
	return o.moves, nil
}

// movable reads where an agent works, and reports whether it can work here.
func (s *Store) movable(ctx context.Context, name string) (moves bool, cwd string, err error) {
	ctx, cancel := context.WithTimeout(ctx, acceptPatience)
	defer cancel()
	stream, err := s.opened(ctx)
	if err != nil {
		return false, "", err
	}
	_, said, err := stream.Last(ctx, name)
	if err != nil || said == nil {
		return false, "", err
	}
	var of about
	if err := json.Unmarshal(said, &of); err != nil {
		return false, "", fmt.Errorf("what is said of %s: %w", name, err)
	}
	return of.Shared && s.shares(of.Cwd), of.Cwd, nil
}

// rank is how many of the machines that are up are to take an agent over before this one: chance, which all throw alike.
func (s *Store) rank(name string) (rank int) {
	weight := func(machine string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(machine + "\x00" + name)) // it does not fail
		return h.Sum64()
	}
	own := weight(s.node.Self())
	for _, m := range s.node.Machines() {
		if m.State == cluster.Up && m.Name != s.node.Self() && weight(m.Name) > own {
			rank++
		}
	}
	return rank
}

// TakeOver makes an agent of a machine that is gone this machine's. It is no error if another machine was quicker, or the
// machine is back.
func (s *Store) TakeOver(ctx context.Context, name string) error {
	claim, ok := s.node.Owner(name)
	if !ok || claim.Machine == s.node.Self() || !s.node.Gone(claim.Machine) {
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, claimPatience)
	defer cancel()
	if _, err := s.node.Claim(asked, name, claim.Epoch); errors.Is(err, cluster.ErrClaimed) {
		return nil
	} else if err != nil {
		return err
	}
	s.log.Info("the agent of a machine that is gone is taken over", zap.String("agent", name), zap.String("machine", claim.Machine))
	return s.Prepare(ctx, name)
}

// Shared are directories as [Options] want them; relative to the working directory.
func Shared(dirs []string) (all []string, err error) {
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(real); err != nil || !info.IsDir() {
			return nil, errors.Join(err, fmt.Errorf("%s is no directory", dir))
		}
		all = append(all, real)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
