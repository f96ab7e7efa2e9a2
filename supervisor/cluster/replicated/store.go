package replicated

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/accepted"
	"nexus.internal/supervisor/cluster/mirror"
)

const (
	// acceptPatience bounds the wait for a majority that takes a prompt, or what is asked for once.
	acceptPatience = 10 * time.Second
	// closePatience bounds that for what an agent wrote last, when it ends.
	closePatience = 3 * time.Second
	// shipEvery is how often is looked for agents whose files have changed.
	shipEvery = 2 * time.Second
	// shipping is how many of them are shipped at a time.
	shipping = 8
)

// Directories tell where agents work. It is safe for concurrent use.
type Directories interface {
	// Place is where an agent works, running or saved; the zero value if that is not known.
	Place(agent string) Place
	// Lose gives an agent an empty directory in the place of the one that it has lost with a machine. Its session is saved here and no
	// process has it open. What it did before, it may do again.
	Lose(agent, machine string) error
}

// Place is where an agent works, and with whom.
type Place struct {
	// Cwd is its working directory; "" if it is not known.
	Cwd string
	// Fresh says that it is to go on in an empty one elsewhere if it loses that with its machine.
	Fresh bool
	// Creator is the agent that has created it, whose limits it shares: it goes to no other machine than that one. It is "" for none.
	Creator string
}

// Options say what is kept.
type Options struct {
	// Local has the records on this machine's disk, beside the sessions in the directory Root. Required.
	Local supervisor.Store
	Root  string
	// Dir is a directory of this package alone, in the file system of the files. It is made when it is needed. Required.
	Dir string
	// Shared are the directories that other machines have, too: absolute, without links. Agents that work in them
	// may be taken over.
	Shared []string
	// MaxBytes bounds what the machines keep of all agents together, and once more what they keep of that in the object store; 0 for no bound but their disks.
	MaxBytes int64
	// Dirs tells where agents work. Required.
	Dirs Directories
	// Later takes what is met of later formats; nil takes nothing.
	Later *format.Later
	Log   *zap.Logger // nil logs nothing
}

// Store is a [supervisor.Store] whose records are on a majority of the machines when they say so.
type Store struct {
	o       Options
	log     *zap.Logger
	node    *cluster.Node
	notes   notes
	lists   *lists          // from Start on
	hurry   context.Context //nolint:containedctx // of the store's life: ends with Hurry
	hasten  context.CancelFunc
	running sync.WaitGroup
	stop    context.CancelFunc

	unnamedFor time.Duration // as the constant

	opening sync.Mutex // held while the stream is opened
	mu      sync.Mutex // guards what follows
	stream  *mirror.Stream
	agents  map[string]*agent

	orphans map[string]*orphan // of Orphans
}

// agent is what this process knows of the files of an agent.
type agent struct {
	mu     sync.Mutex                    // held while the files are fetched or shipped
	mirror *mirror.Mirror                // nil until it is needed
	epoch  uint64                        // of mirror
	said   about                         // by mirror; the zero value for nothing of ours
	known  uint64                        // at which epoch it was seen here that the files are not older than what was shipped
	open   atomic.Bool                   // its records are
	looks  string                        // what its files looked like when they were shipped last, while they are
	list   atomic.Pointer[accepted.List] // nil while prompts are accepted by shipping the files
	over   uint64                        // how often what is in the records was written over when that was looked at last
	taken  note                          // of a takeover, from which the agent's is made when its files are here; of mu
}

// compare has all be compared that the others have of the records, unless nothing was written over since. mu is held.
func (a *agent) compare(over uint64) {
	if over != a.over && a.mirror != nil {
		a.mirror.Compare()
	}
	a.over = over
}

// New returns a Store that is to be started.
func New(o Options) *Store {
	o.Log = cmp.Or(o.Log, zap.NewNop())
	s := &Store{o: o, log: o.Log.Named("replicas"), unnamedFor: unnamedFor, agents: map[string]*agent{}, orphans: map[string]*orphan{}}
	s.notes.dir = filepath.Join(o.Dir, "laid")
	s.hurry, s.hasten = context.WithCancel(context.Background())
	return s
}

// Start begins to ship what changes. The node stays its caller's, and is closed after the Store.
func (s *Store) Start(node *cluster.Node) error {
	if err := s.notes.read(); err != nil {
		return fmt.Errorf("find what is shipped to other machines: %w", err)
	}
	s.node = node
	s.lists = &lists{node: node, later: s.o.Later, log: s.log}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.running.Go(func() { s.lists.keep(ctx) })
	s.running.Go(func() { s.shipChanged(ctx) })
	s.running.Go(func() { sweepObjects(ctx, s) })
	return nil
}

// Hurry says that the server ends: nothing waits for a majority any longer than it takes to ask.
func (s *Store) Hurry() { s.hasten() }

// Close ends the store. The records of all agents are closed before.
func (s *Store) Close() {
	s.hasten()
	if s.stop != nil {
		s.stop()
	}
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.agents {
		if a.mirror != nil {
			a.mirror.Close()
		}
	}
	clear(s.agents)
}

// isTemp reports whether an agent ends with its server, so that nothing of it is shipped.
func isTemp(agent string) bool { return strings.HasPrefix(agent, ".") }

// of is what is known of an agent.
func (s *Store) of(name string) *agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	if a == nil {
		a = &agent{}
		s.agents[name] = a
	}
	return a
}

// opened is the stream of files, which is opened once.
func (s *Store) opened(ctx context.Context) (*mirror.Stream, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.stream != nil {
		return s.stream, nil
	}
	stream, err := mirror.Open(ctx, s.node.JetStream(), s.node.Cluster(), s.node.Replicas(), s.o.MaxBytes)
	if err == nil {
		s.stream = stream
	}
	return stream, err
}

// reason is what an error of the mirror means.
func (s *Store) reason(err error) error {
	_ = s.o.Later.Note(err)
	switch {
	case err == nil, errors.Is(err, supervisor.ErrMoved):
		return err
	case errors.Is(err, mirror.ErrFenced):
		return fmt.Errorf("%w: %w", supervisor.ErrMoved, err)
	case errors.Is(err, mirror.ErrFull):
		return fmt.Errorf("%w: %w", supervisor.ErrNoRoom, err)
	}
	_, ofPath := errors.AsType[*fs.PathError](err)
	_, ofLink := errors.AsType[*os.LinkError](err)
	if ofPath || ofLink || errors.Is(err, mirror.ErrTooLarge) || errors.Is(err, mirror.ErrUnreadable) {
		return fmt.Errorf("%w: %w", supervisor.ErrUnrecorded, err)
	}
	return fmt.Errorf("%w: %w", supervisor.ErrNoMajority, err)
}

// Open implements [supervisor.Store]. The agent is claimed.
func (s *Store) Open(name string, fresh bool) (supervisor.Records, error) {
	if isTemp(name) {
		return s.o.Local.Open(name, fresh)
	}
	a := s.of(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.hurry, acceptPatience)
	defer cancel()
	if err := s.prepare(ctx, name, a); err != nil {
		return nil, s.reason(err)
	}
	kept, err := s.o.Local.Open(name, fresh)
	if err != nil {
		return nil, err
	}
	if a.mirror != nil {
		a.mirror.Compare() // what was not closed well was mended
	}
	a.over = 0
	s.lists.take(s.hurry, name, a, kept, fresh, s.notes.get(name).From != "")
	if !fresh { // what it says of earlier turns is known elsewhere before it is told, and so is from where on numbers of events are given here
		if err := s.ship(ctx, name, a); err != nil {
			a.list.Store(nil)
			return nil, errors.Join(s.reason(err), kept.Close())
		}
	}
	noted := s.notes.get(name)
	if err := s.notes.write(name, note{Epoch: noted.Epoch, Files: noted.Files}); err != nil {
		return nil, errors.Join(err, kept.Close())
	}
	a.open.Store(true)
	return &records{Records: kept, s: s, name: name, a: a, from: supervisor.Origin{Machine: noted.From, Left: noted.Left}}, nil
}

// records are those of an agent that other machines have, too.
type records struct {
	supervisor.Records
	s    *Store
	name string
	a    *agent
	from supervisor.Origin
	late late
}

// Origin implements [supervisor.Records].
func (r *records) Origin() supervisor.Origin { return r.from }

// Settle implements [supervisor.Records]. It waits for a majority for as long as that takes, unless the server ends.
func (r *records) Settle() error {
	for {
		ctx, cancel := context.WithTimeout(r.s.hurry, acceptPatience)
		if r.s.hurry.Err() != nil {
			ctx, cancel = context.WithTimeout(context.Background(), closePatience)
		}
		last := r.s.hurry.Err() != nil
		err := r.shipped(ctx)
		cancel()
		if err == nil {
			r.s.lists.agree()
		}
		if last || !errors.Is(err, supervisor.ErrNoMajority) {
			return err
		}
		r.s.log.Warn("an outcome waits for a majority of the machines", zap.String("agent", r.name), zap.Error(err))
		_ = ratelimit.Sleep(r.s.hurry, time.Second) // then for the last time
	}
}

func (r *records) shipped(ctx context.Context) error {
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	r.a.compare(r.Overwritten())
	return r.s.reason(r.s.ship(ctx, r.name, r.a))
}

// Close implements [supervisor.Records]: what was written last is shipped, if there is a majority.
func (r *records) Close() error { return r.end(r.Records.Close) }

// Remove implements [supervisor.Records].
func (r *records) Remove() error { return r.end(r.Records.Remove) }

func (r *records) end(by func() error) error {
	r.late.close()
	err := by()
	r.a.mu.Lock()
	defer r.a.mu.Unlock()
	r.a.open.Store(false)
	r.a.list.Store(nil)
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if failed := r.s.settle(ctx, r.name, r.a); failed != nil && !errors.Is(r.s.reason(failed), supervisor.ErrMoved) {
		r.s.log.Warn("what an agent wrote last is on this machine alone; it is tried again", zap.String("agent", r.name), zap.Error(failed))
	}
	return err
}
