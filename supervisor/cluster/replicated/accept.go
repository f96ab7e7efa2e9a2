package replicated

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/accepted"
	"nexus.internal/supervisor/cluster/mirror"
	"nexus.internal/supervisor/store"
)

const (
	// listPatience bounds the wait for a majority that takes a prompt into its memory: then the files are shipped.
	listPatience = 200 * time.Millisecond
	// adoptPatience bounds the wait for what a machine that is gone had accepted: the lists may have been led by that machine.
	adoptPatience = 5 * time.Second
	// openPatience bounds one try to open the lists: what is asked while the machines elect who leads is lost. OpenEvery is between two tries, or openSeldom where that helps
	// nothing.
	openPatience, openEvery, openSeldom = time.Second, 200 * time.Millisecond, 30 * time.Second
	// unnamedFor is for how long the others do not know of a prompt without a name, and agreedFor for how long one is accepted so after this machine has agreed on
	// something with a majority.
	unnamedFor, agreedFor = 50 * time.Millisecond, time.Second
)

// Accept implements [supervisor.Records]: the prompt is known to a majority, too. Their memory is enough until the files are shipped; where that is not to be had, they are
// shipped now.
func (r *records) Accept(id string, digest [32]byte) error {
	if err := r.Records.Accept(id, digest); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.s.hurry, acceptPatience)
	defer cancel()
	if r.s.lists.accept(ctx, r.name, r.a, promptOf(id, digest)) {
		r.s.lists.agree()
		return nil
	}
	if err := r.shipped(ctx); err != nil { // who repeats it begins it
		r.End(supervisor.Result{TurnID: id, Outcome: store.Withdrawn})
		return err
	}
	r.s.lists.agree()
	r.s.lists.renew(ctx, r.name, r.a) // for the next one
	return nil
}

func promptOf(id string, digest [sha256.Size]byte) accepted.Prompt {
	return accepted.Prompt{ID: id, SHA256: hex.EncodeToString(digest[:])}
}

// AcceptUnnamed implements [supervisor.Records]: the prompt is known to a majority soon, unless it has ended by then. Without a majority it is refused, as others are: this machine
// has agreed with one lately, else it asks.
func (r *records) AcceptUnnamed(id string, digest [sha256.Size]byte) error {
	if last := r.s.lists.agreed.Load(); last == nil || time.Since(*last) > agreedFor || r.s.lists.ours(r.name, r.a) == nil {
		return r.Accept(id, digest)
	}
	if err := r.Records.AcceptUnnamed(id, digest); err != nil {
		return err
	}
	r.late.add(id, r.s.unnamedFor, func() {
		ctx, cancel := context.WithTimeout(r.s.hurry, listPatience)
		defer cancel()
		r.s.lists.accept(ctx, r.name, r.a, promptOf(id, digest)) // else the files say it, within shipEvery
	})
	return nil
}

// End implements [supervisor.Records].
func (r *records) End(result supervisor.Result) {
	r.late.drop(result.TurnID)
	r.Records.End(result)
}

// late has what is to be told of prompts that have no name, unless they end before. Its methods may be called from any goroutine.
type late struct {
	mu      sync.Mutex
	timers  map[string]*time.Timer // by request id
	telling sync.WaitGroup         // one for each timer, until it has run or is stopped
}

// add has something be told of a prompt after some time.
func (l *late) add(id string, after time.Duration, tell func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.telling.Add(1)
	if l.timers == nil {
		l.timers = map[string]*time.Timer{}
	}
	l.timers[id] = time.AfterFunc(after, func() {
		defer l.telling.Done()
		tell()
	})
}

func (l *late) drop(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.timers[id]; t != nil && t.Stop() {
		l.telling.Done()
	}
	delete(l.timers, id)
}

// close drops all, and waits for what is being told. Nothing is added any more.
func (l *late) close() {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.timers))
	l.mu.Unlock()
	for _, id := range all {
		l.drop(id)
	}
	l.telling.Wait()
}

// lists are those of accepted prompts, of all agents. Without them prompts are accepted by shipping files.
type lists struct {
	node   *cluster.Node
	later  *format.Later
	log    *zap.Logger
	bucket atomic.Pointer[accepted.Bucket] // nil until it is open
	silent atomic.Pointer[time.Time]       // when a list was not to be had last; nil for never
	agreed atomic.Pointer[time.Time]       // when a majority took something of this machine last; nil for never
}

// agree notes that a majority has taken something just now.
func (l *lists) agree() {
	now := time.Now()
	l.agreed.Store(&now)
}

// keep has the bucket open until ctx ends.
func (l *lists) keep(ctx context.Context) {
	for wait := openEvery; ratelimit.Sleep(ctx, wait) == nil; {
		if wait = openEvery; l.bucket.Load() != nil {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, openPatience)
		bucket, err := accepted.Open(asked, l.node.JetStream(), l.node.Cluster(), l.node.Replicas())
		cancel()
		if errors.Is(err, accepted.ErrAlone) {
			return
		}
		if err == nil {
			l.bucket.Store(bucket)
			continue
		}
		if wait = afterRefusal(err); wait != openEvery {
			l.log.Warn("prompts are accepted by shipping files, as the lists are refused", zap.Error(err))
		}
	}
}

// unavailable is the first code of refusals that pass, as in HTTP: nobody leads the machines yet.
const unavailable = 500

// afterRefusal is how long after an error of opening the lists that is tried again.
func afterRefusal(err error) time.Duration {
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.Code < unavailable {
		return openSeldom
	}
	return openEvery
}

var errNoLists = errors.New("the machines have no lists of accepted prompts yet")

// of takes the list of an agent that this machine has; before is what is on it.
func (l *lists) of(ctx context.Context, name string, fresh bool) (list *accepted.List, before []accepted.Prompt, err error) {
	claim, ok := l.node.Owner(name)
	if !ok || claim.Machine != l.node.Self() {
		return nil, nil, supervisor.ErrMoved
	}
	bucket := l.bucket.Load()
	if bucket == nil {
		return nil, nil, errNoLists
	}
	if list, before, err = bucket.Take(ctx, name, claim.Epoch, fresh); err != nil && (ctx.Err() == nil || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse)) {
		l.bucket.CompareAndSwap(bucket, nil) // it may be there no more
	}
	return list, before, l.later.Note(err)
}

// accept reports whether a majority of the machines has taken a prompt into the list of an agent.
func (l *lists) accept(ctx context.Context, name string, a *agent, p accepted.Prompt) bool {
	list := l.ours(name, a)
	if list == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	err := list.Accept(ctx, p)
	if err != nil && !errors.Is(err, accepted.ErrLong) {
		a.list.CompareAndSwap(list, nil)
		l.log.Info("prompts are accepted by shipping files for now", zap.String("agent", name), zap.Error(err))
	}
	return err == nil
}

// ours is the list of an agent, as long as this machine has that and all others adopt what is on it; else nil.
func (l *lists) ours(name string, a *agent) *accepted.List {
	list := a.list.Load()
	claim, ok := l.node.Owner(name)
	if list == nil || !ok || claim.Machine != l.node.Self() || claim.Epoch != list.Epoch() || !l.adopted() {
		return nil
	}
	return list
}

// adopted reports whether each machine that may take agents over adopts what is on a list.
func (l *lists) adopted() bool { return all(l.node, func(m cluster.Machine) bool { return m.Adopts }) }

// all reports whether each machine that may take agents over says something of itself, which those of earlier versions do not. One that was not heard of takes none over.
func all(node *cluster.Node, says func(cluster.Machine) bool) bool {
	return !slices.ContainsFunc(node.Machines(), func(m cluster.Machine) bool { return !says(m) && m.State != cluster.Left && !m.Heard.IsZero() })
}

// take makes the list of an agent whose records are to be opened this machine's, and adopts what its earlier owner had accepted since that shipped the files; if that is gone, it
// waits longer for that. a.mu is held.
func (l *lists) take(ctx context.Context, name string, a *agent, kept supervisor.Records, fresh, gone bool) {
	patience := listPatience
	if gone {
		patience = adoptPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var list *accepted.List
	var before []accepted.Prompt
	ask := func(ctx context.Context) (err error) {
		list, before, err = l.of(ctx, name, fresh)
		return err
	}
	err := untilAnswered(ctx, ask) // a question may go to the machine that stands still
	for gone && err != nil && ratelimit.Sleep(ctx, openEvery) == nil {
		err = untilAnswered(ctx, ask)
	}
	for i := 0; i < len(before) && err == nil; i++ {
		err = adopt(kept, before[i])
	}
	if err != nil {
		l.log.Info("what was accepted of an agent since its files were shipped is not known", zap.String("agent", name), zap.Error(err))
		return
	}
	a.list.Store(list)
}

// adopt records a prompt that another machine had accepted.
func adopt(kept supervisor.Records, p accepted.Prompt) error {
	sum, err := hex.DecodeString(p.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("the prompt %q has no sum: %w", p.ID, mirror.ErrUnreadable)
	}
	return kept.Adopt(p.ID, [sha256.Size]byte(sum))
}

// renew takes the list of an agent whose records are open, if it has none, and lists are to be had now.
func (l *lists) renew(ctx context.Context, name string, a *agent) {
	if silent := l.silent.Load(); a.list.Load() != nil || l.bucket.Load() == nil || silent != nil && time.Since(*silent) < shipEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	list, _, err := l.of(ctx, name, false)
	if err == nil {
		a.list.Store(list)
		return
	}
	now := time.Now()
	l.silent.Store(&now)
}

// forget removes the list of an agent that is no more. One that stays does no harm: the next agent of that name empties it.
func (l *lists) forget(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	if bucket := l.bucket.Load(); bucket != nil {
		_ = bucket.Forget(ctx, name)
	}
}
