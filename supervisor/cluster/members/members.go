package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/register"
)

const (
	// valueName is under which name the register has [cluster.Removed].
	valueName = "removed"
	// removedTopic is under which one a machine is told that it is removed, and tellPatience how long it may take to answer.
	removedTopic = "removed"
	tellPatience = 5 * time.Second
	// lookEvery is how often is looked how many machines there are to be.
	lookEvery = 2 * time.Second
	// aloneLooks is how often NATS must be seen in no group until it is said that it does not count this machine.
	aloneLooks = 5
	// changeTries is how often the register is changed again that another machine has changed meanwhile, changePause between two.
	changeTries = 20
	changePause = 100 * time.Millisecond
)

// Options say whose members they are.
type Options struct {
	// Machine is this one.
	Machine string
	// Joined is how many machines are joined, which counts until NATS says how many there are; 0 where its servers are others'.
	Joined int
	// System is the connection of [cluster.SystemUser]; nil where the servers of NATS are others'. It stays its caller's.
	System *nats.Conn
	// Register is where the machines agree on who was removed. It is closed after the Members.
	Register *register.Register
	// Since is when this machine got its certificate, or else when it began. If it was removed earlier, it is a machine again.
	Since time.Time
	// Dir is that of the engine, which must be there; "" without one.
	Dir string
	// Later takes what is met of later formats; nil takes nothing.
	Later *format.Later
	Log   *zap.Logger // nil logs nothing
}

// Members is a [cluster.Members]. Its methods may be called from any goroutine.
type Members struct {
	o       Options
	log     *zap.Logger
	stop    context.CancelFunc
	running sync.WaitGroup

	leaving sync.Mutex    // held while what the engine is to know is written, and out is closed: nothing is written after that
	out     chan struct{} // closed once this machine was removed

	mu        sync.Mutex          // guards what follows
	count     int                 // of machines
	uncounted bool                // this one is not among them
	peers     map[string]struct{} // the others, by id; nil while not all are known
	alone     int                 // how often NATS was seen in no group, one after the other
	removed   cluster.Removed     // never changed, but replaced
}

// Open begins to follow which machines there are, until Close. It waits for nobody.
func Open(o Options) (*Members, error) {
	ctx, stop := context.WithCancel(context.Background())
	m := &Members{o: o, log: cmp.Or(o.Log, zap.NewNop()), stop: stop, out: make(chan struct{}), count: o.Joined}
	deaf, err := o.Register.Answer(removedTopic, m)
	if err != nil {
		stop()
		return nil, err
	}
	m.running.Go(func() {
		defer deaf()
		m.follow(ctx)
	})
	return m, nil
}

// Close ends the following. Nothing of the members runs when it returns.
func (m *Members) Close() {
	m.stop()
	m.running.Wait()
}

// Count implements [cluster.Members].
func (m *Members) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// Counts implements [cluster.Members]: whether NATS counts a machine among its own, and keeps what it should on it. One that was removed and joins anew it counts after five minutes.
func (m *Members) Counts(machine string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if machine == m.o.Machine {
		return !m.uncounted
	}
	_, counts := m.peers[peerID(machine)]
	return counts || m.peers == nil
}

// Removed implements [cluster.Members].
func (m *Members) Removed(machine string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, removed := m.removed[machine]
	return removed
}

// Out is closed once this machine was removed.
func (m *Members) Out() <-chan struct{} { return m.out }

// follow keeps what is known here of the members.
func (m *Members) follow(ctx context.Context) {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	var taken uint64 // revision
	for {
		changed := m.o.Register.Changed()
		if revision, err := m.take(ctx, taken); err == nil {
			taken = revision
		} else if ctx.Err() == nil {
			m.log.Warn("which machines were removed", zap.Error(err))
		}
		if m.o.System != nil {
			m.recount(ctx)
		}
		select {
		case <-changed:
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// take takes what the register says, unless it was taken, and is its revision.
func (m *Members) take(ctx context.Context, taken uint64) (revision uint64, err error) {
	removed, revision, err := m.read()
	if err != nil || revision == taken {
		return taken, nil // nothing is known yet, or nothing new
	}
	m.mu.Lock()
	m.removed = removed
	m.mu.Unlock()
	out, err := m.obey(removed)
	if _, was := removed[m.o.Machine]; err != nil || out || !was {
		return revision, err
	}
	m.log.Warn("this machine was removed from the cluster, and joins it anew")
	_, err = m.change(ctx, func(r cluster.Removed) { delete(r, m.o.Machine) })
	return taken, err
}

// obey has the engine know who was removed, and says whether this machine was. Then it is none of the cluster any more.
func (m *Members) obey(removed cluster.Removed) (out bool, err error) {
	m.leaving.Lock()
	defer m.leaving.Unlock()
	select {
	case <-m.out:
		return true, nil
	default:
	}
	if m.o.Dir != "" {
		if err := removed.Write(m.o.Dir); err != nil {
			return false, err
		}
	}
	why := removed.Refuse(m.o.Machine, m.o.Since)
	if why == nil {
		return false, nil
	}
	m.log.Error("this machine is none of the cluster any more", zap.Error(why))
	close(m.out)
	return true, nil
}

// Answer implements [register.Answerer]: it hears that this machine is removed before its engine is, by which it would not learn it.
func (m *Members) Answer(question []byte) []byte {
	var removed cluster.Removed
	if err := m.o.Later.Note(format.Removed.Decode(question, &removed)); err != nil || removed.Refuse(m.o.Machine, m.o.Since) == nil {
		return nil // another machine is meant
	}
	if _, err := m.obey(removed); err != nil {
		m.log.Warn("this machine is removed", zap.Error(err))
	}
	return []byte(m.o.Machine)
}

// read is what the register says.
func (m *Members) read() (removed cluster.Removed, revision uint64, err error) {
	text, revision, known := m.o.Register.Get(valueName)
	if !known {
		return nil, 0, cluster.ErrNoQuorum
	}
	if len(text) > 0 {
		if err := m.o.Later.Note(format.Removed.Decode(text, &removed)); err != nil {
			return nil, 0, fmt.Errorf("which machines were removed: %w", err)
		}
	}
	return removed, revision, nil
}

// change changes what the register says, and is what it says then. The error is [cluster.ErrNoQuorum] without a majority.
func (m *Members) change(ctx context.Context, to func(cluster.Removed)) (text []byte, err error) {
	err = cluster.ErrChanged
	for try := 0; errors.Is(err, cluster.ErrChanged) && try < changeTries; try++ {
		var removed cluster.Removed
		var revision uint64
		if removed, revision, err = m.read(); err != nil {
			return nil, err
		}
		if removed = maps.Clone(removed); removed == nil {
			removed = cluster.Removed{}
		}
		to(removed)
		if text, err = json.Marshal(removed, json.Deterministic(true)); err != nil {
			return nil, err
		}
		if _, err = m.o.Register.Put(ctx, valueName, text, revision); err != nil && ratelimit.Sleep(ctx, changePause) != nil {
			break // else the other change is known here by now
		}
	}
	return text, err
}
