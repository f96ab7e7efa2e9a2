package replicated

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/mirror"
)

// rankDelay is how much longer each machine waits for the one that is to take an agent over before it.
const rankDelay = 2 * time.Second

// takenPatience bounds the wait for what the stream has of an agent that is nobody's.
const takenPatience = 2 * time.Second

// firstPatience bounds the first question about an agent whose machine is gone. It is short, as nobody answers while the machines elect one that
// leads them, and a question from that time is lost. Later ones are given a part of the time that has passed more, which is enough for any network in the end.
const firstPatience, laterPart = 250 * time.Millisecond, 10

// asking is of how many agents is asked at a time what was said of them.
const asking = 32

// orphan is an agent whose machine is gone.
type orphan struct {
	claim cluster.Claim // of that machine
	since time.Time
	asked bool // what is said of it was read
	moves bool // it may be taken over here
	last  bool // only if none takes it over that shares its directory
	// creator is the agent that has created it, which it follows; "" for none.
	creator string
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
	return s.reason(s.prepare(ctx, name, a))
}

// prepare is Prepare; a.mu is held.
func (s *Store) prepare(ctx context.Context, name string, a *agent) error {
	claim, ok := s.node.Owner(name)
	noted := s.notes.get(name)
	if ok && claim.Machine == s.node.Self() && noted.Epoch == claim.Epoch {
		return catchUp(ctx, s, name, a, noted)
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
		err := s.fetch(ctx, name, m, noted, claim.Epoch)
		if err == nil {
			err = loseCwd(s, name, m)
		}
		if err != nil {
			s.drop(a) // it is taken anew then
			return err
		}
	}
	if a.taken.Epoch == claim.Epoch {
		noted.From, noted.Left = a.taken.From, a.taken.Left
	}
	a.known = claim.Epoch
	return s.notes.write(name, noted.shipped(a.epoch, ""))
}

// catchUp sees that the files of an agent that this machine has as before are not older than those that it has shipped: its disk, or a part of it, may have been put
// back to an earlier state, or have lost what was not synced. Then those are laid out that were shipped. It looks once for each claim and process. a.mu is held.
func catchUp(ctx context.Context, s *Store, name string, a *agent, noted note) error {
	if a.known == noted.Epoch || a.open.Load() {
		return nil
	}
	if noted.Leaves { // by a process that did not live to give up the name
		looks, err := s.look(name)
		if err != nil || looks == "" {
			return err
		}
	}
	m, err := s.take(ctx, name, a)
	if err != nil {
		return err
	}
	behind, err := m.Behind()
	if err == nil && behind {
		s.log.Warn("what is saved of an agent here is older than what this machine has shipped: that is fetched", zap.String("agent", name))
		if err = s.fetch(ctx, name, m, noted, noted.Epoch); err == nil {
			err = s.notes.write(name, noted.shipped(noted.Epoch, ""))
		}
	}
	if err != nil {
		s.drop(a) // it is taken anew then
		return err
	}
	a.known = noted.Epoch
	return nil
}

// Leave notes that the files of an agent get another name, before they do: they are not fetched again under this one if the process ends meanwhile.
func (s *Store) Leave(name string) error {
	a := s.of(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	noted := s.notes.get(name)
	if noted.Epoch == 0 {
		return nil
	}
	noted.Leaves = true
	return s.notes.write(name, noted)
}

// fetch lays out the files of an agent as another machine has shipped them.
func (s *Store) fetch(ctx context.Context, name string, m *mirror.Mirror, noted note, epoch uint64) error {
	err := m.Restore(ctx, func() error { return s.setAside(name, epoch) })
	switch {
	case err == nil:
		s.log.Info("an agent goes on here", zap.String("agent", name))
	case errors.Is(err, mirror.ErrNothing) && noted.Epoch > 0: // it was removed elsewhere
		return s.setAside(name, epoch)
	case errors.Is(err, mirror.ErrNothing): // it was saved here before anybody shipped it
		return nil
	}
	return err
}

// loseCwd has an agent whose files were fetched go on in an empty directory, if it is to and its own is another machine's.
func loseCwd(s *Store, name string, m *mirror.Mirror) error {
	of, err := readAbout(name, m.Said())
	if err != nil || !of.Fresh || of.Machine == s.node.Self() || of.Shared && s.shares(of.Cwd) {
		return err
	}
	if looks, err := look(s.o.Root, name); err != nil || looks == "" {
		return err
	}
	s.log.Warn("an agent has lost its directory with its machine, and goes on in an empty one", zap.String("agent", name), zap.String("cwd", of.Cwd), zap.String("machine", of.Machine))
	return s.o.Dirs.Lose(name, of.Machine)
}

// setAside moves the files of an agent away, if there are any: they are of an earlier time than those of an epoch, which other machines have.
// Of each agent the last ones are kept. Those that were there when it was called for that epoch before are of an attempt that was cut off.
func (s *Store) setAside(name string, epoch uint64) error {
	looks, err := look(s.o.Root, name)
	if err != nil || looks == "" {
		return err
	}
	before, err := filepath.Glob(filepath.Join(s.o.Dir, "aside", encoded(name)+".*"))
	if err != nil {
		return err
	}
	aside := filepath.Join(s.o.Dir, "aside", fmt.Sprintf("%s.%d", encoded(name), epoch))
	again := slices.Contains(before, aside)
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return err
	}
	for _, path := range paths(name) {
		from, to := filepath.Join(s.o.Root, path), filepath.Join(aside, path)
		if again {
			if _, err := os.Lstat(to); err == nil {
				if err := os.RemoveAll(from); err != nil {
					return err
				}
				continue
			}
		}
		if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, dir := range before {
		if dir != aside {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	s.log.Info("what was saved of an agent here is older than what the machines have, and set aside", zap.String("agent", name), zap.String("dir", aside))
	return err
}

// Taken are the agents whose files are here and that another machine has had since, whether it still has them or has removed them.
func (s *Store) Taken(ctx context.Context) (agents []string) {
	for name, noted := range s.notes.all() {
		if epoch, err := s.taken(ctx, name, noted); err == nil && epoch > 0 {
			agents = append(agents, name)
		}
	}
	return agents
}

// taken is the epoch under which another machine has, or had, an agent since this one; 0 if none.
func (s *Store) taken(ctx context.Context, name string, noted note) (epoch uint64, err error) {
	claim, ok := s.node.Owner(name)
	switch {
	case ok && claim.Epoch > noted.Epoch && (claim.Machine != s.node.Self() || s.of(name).open.Load()):
		return claim.Epoch, nil
	case ok || noted.Epoch == 0 || s.node.Check() != nil:
		return 0, nil
	}
	// Nobody has it. That all claims are gone, with those who knew them, is no reason to take what is here for old.
	ctx, cancel := context.WithTimeout(ctx, takenPatience)
	defer cancel()
	stream, err := s.opened(ctx)
	if err != nil {
		return 0, err
	}
	last, _, err := stream.Last(ctx, name)
	if err != nil || last <= noted.Epoch {
		return 0, err
	}
	return last, nil
}

// GiveUp sets aside the files of an agent that another machine has had since. Its records are not open.
func (s *Store) GiveUp(ctx context.Context, name string) error {
	a := s.of(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	epoch, err := s.taken(ctx, name, s.notes.get(name))
	if err != nil || epoch == 0 {
		return err
	}
	s.drop(a)
	if err := s.setAside(name, epoch); err != nil {
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
	if s.notes.get(name).Epoch == 0 { // it was, already
		return nil
	}
	defer s.drop(a)
	ctx, cancel := context.WithTimeout(ctx, acceptPatience)
	defer cancel()
	m, err := s.take(ctx, name, a)
	if err == nil {
		err = m.Remove(ctx)
	}
	if err != nil {
		return s.reason(err)
	}
	s.lists.forget(ctx, name)
	return s.notes.remove(name)
}

// Orphans are the agents of machines that are gone which this one is to take over now: those that work where both share the
// directory, and those that go on in an empty one. Of the machines that could, each waits for those before it. It is called by one goroutine.
func (s *Store) Orphans(ctx context.Context) (agents []string) {
	if s.node.Draining() {
		return nil
	}
	claims, gone := s.node.Claims(), map[string]bool{}
	for _, claim := range claims {
		if _, known := gone[claim.Machine]; !known {
			gone[claim.Machine] = s.node.Gone(claim.Machine)
		}
	}
	maps.DeleteFunc(claims, func(_ string, claim cluster.Claim) bool { return !gone[claim.Machine] })
	maps.DeleteFunc(s.orphans, func(name string, o *orphan) bool { return claims[name] != o.claim })
	var unknown []string
	for name, claim := range claims {
		o := s.orphans[name]
		if o == nil {
			o = &orphan{claim: claim, since: time.Now()}
			s.orphans[name] = o
		}
		if s.due(name, o) && !o.asked && !isTemp(name) {
			unknown = append(unknown, name)
		}
	}
	s.learn(ctx, unknown)
	for name, o := range s.orphans {
		at := creatorAt(s, o.creator)
		if s.due(name, o) && (o.moves && (at == "" || at == s.node.Self()) || isTemp(name)) { // a temporary one has ended with its machine, and its name is free
			agents = append(agents, name)
		}
	}
	return agents
}

// due reports whether the machines that are to take an agent over before this one have had the time for it.
func (s *Store) due(name string, o *orphan) bool {
	return time.Since(o.since) >= time.Duration(s.rank(name, o.last))*rankDelay
}

// learn reads what is said of orphans, some at a time. If nobody answers for one, it leaves off, as nor would anybody for the next one.
func (s *Store) learn(ctx context.Context, names []string) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var work sync.WaitGroup
	places := make(chan struct{}, asking)
	for _, name := range names {
		o := s.orphans[name]
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			if ctx.Err() != nil {
				return
			}
			of, err := s.said(ctx, name)
			switch {
			case err == nil:
				s.judge(name, o, of)
			case errors.Is(err, mirror.ErrUnreadable):
				o.asked = true // and stays where it is
				_ = s.o.Later.Note(err)
				s.log.Warn("an agent waits for its machine, or for one that can read what is kept of it", zap.String("agent", name), zap.Error(err))
			default:
				stop(err)
			}
		})
	}
	work.Wait()
	if err := context.Cause(ctx); err != nil {
		s.log.Info("which agents may be taken over is not known yet", zap.Error(err))
	}
}

// judge finds whether an orphan may be taken over here, by what was said of it.
func (s *Store) judge(name string, o *orphan, of about) {
	shares := of.Shared && s.shares(of.Cwd)
	o.asked, o.moves, o.last, o.creator = true, shares || of.Fresh, of.Shared && !shares, of.Creator // the last ones wait longer
	if !o.moves {
		s.log.Info("an agent waits for its machine, as it works in a directory that is not shared", zap.String("agent", name), zap.String("cwd", of.Cwd))
	}
}

// Waits reports whether an agent of a machine that is gone stays that machine's: none of those that are up and do not drain shares its directory, and it is not to go on
// in an empty one.
func (s *Store) Waits(ctx context.Context, name string) (bool, error) {
	if isTemp(name) {
		return false, nil
	}
	of, err := s.said(ctx, name)
	if err != nil {
		return false, s.reason(err)
	}
	claim, _ := s.node.Owner(name)
	at := creatorAt(s, of.Creator)
	if at != "" && at == claim.Machine { // it waits with its creator, or goes where that goes
		if waits, err := s.Waits(ctx, of.Creator); err != nil || waits {
			return waits, err
		}
	}
	return !slices.ContainsFunc(s.node.Machines(), func(m cluster.Machine) bool {
		return m.State == cluster.Up && !m.Draining && (of.Fresh || of.Shared && shares(m.Shared, of.Cwd)) && (at == "" || at == claim.Machine || at == m.Name)
	}), nil
}

// said is what the machine of an agent said of it last.
func (s *Store) said(ctx context.Context, name string) (of about, err error) {
	ctx, cancel := context.WithTimeout(ctx, acceptPatience)
	defer cancel()
	stream, err := s.opened(ctx)
	if err != nil {
		return of, err
	}
	var said jsontext.Value
	err = untilAnswered(ctx, func(ctx context.Context) error {
		_, said, err = stream.Last(ctx, name)
		return err
	})
	if err != nil {
		return of, err
	}
	return readAbout(name, said)
}

// untilAnswered asks until there is an answer, which may be an error, or ctx ends.
func untilAnswered(ctx context.Context, ask func(context.Context) error) error {
	for began := time.Now(); ; {
		asked, cancel := context.WithTimeout(ctx, firstPatience+time.Since(began)/laterPart)
		err := ask(asked)
		answered := asked.Err() == nil
		cancel()
		if err == nil || answered || ctx.Err() != nil {
			return err
		}
	}
}

// rank is how many of the machines that are up are to take an agent over before this one: chance, which all throw alike. Of one that is
// to be taken by the others first, they all are.
func (s *Store) rank(name string, last bool) (rank int) {
	own := weight(s.node.Self(), name)
	if last { // behind the last of the others
		rank++
	}
	for _, m := range s.node.Machines() {
		if m.State != cluster.Up || m.Draining || m.Name == s.node.Self() {
			continue
		}
		if last {
			rank++
		}
		if weight(m.Name, name) > own {
			rank++
		}
	}
	return rank
}

// weight is what a machine throws for an agent. Names that differ in their last letter alone are thrown for anew, too.
func weight(machine, agent string) uint64 {
	sum := sha256.Sum256([]byte(machine + "\x00" + agent))
	return binary.BigEndian.Uint64(sum[:])
}

// TakeOver makes an agent of a machine that is gone this machine's; it is to be Prepared then. It is no error if another machine was quicker, or the
// machine is back.
func (s *Store) TakeOver(ctx context.Context, name string) error {
	claim, ok := s.node.Owner(name)
	if !ok || claim.Machine == s.node.Self() || !s.node.Gone(claim.Machine) {
		return nil
	}
	a := s.of(name)
	a.mu.Lock() // no sooner is it prepared than it is known whose it was
	defer a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, acceptPatience)
	defer cancel()
	var own cluster.Claim
	err := untilAnswered(ctx, func(ctx context.Context) (err error) {
		own, err = s.node.Claim(ctx, name, claim.Epoch)
		return err
	})
	switch {
	case errors.Is(err, cluster.ErrClaimed):
		return nil
	case err != nil:
		return err
	case isTemp(name):
		return s.node.Release(ctx, name, own.Epoch)
	}
	s.log.Info("the agent of a machine that is gone is taken over", zap.String("agent", name), zap.String("machine", claim.Machine))
	a.taken = note{Epoch: own.Epoch, From: claim.Machine, Left: s.left(claim.Machine)}
	return nil
}

// left reports whether a machine has ended, as far as is known.
func (s *Store) left(machine string) bool {
	for _, m := range s.node.Machines() {
		if m.Name == machine {
			return m.State == cluster.Left
		}
	}
	return false
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
