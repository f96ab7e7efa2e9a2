package register

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/cluster"
)

const (
	// openPatience bounds the question for what there is, which nobody answers while the machines elect one that leads.
	openPatience = 2 * time.Second
	retryEvery   = 200 * time.Millisecond
)

// Options say whose values they are.
type Options struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Replicas is on how many machines values are kept.
	Replicas int
	// Later takes what is met of later formats; nil takes nothing.
	Later *format.Later
	Log   *zap.Logger // nil logs nothing
}

// Register is what one machine has of the values. Its methods may be called from any goroutine.
type Register struct {
	o       Options
	log     *zap.Logger
	nc      *nats.Conn
	js      jetstream.JetStream
	process string // chance, by which a machine knows what it has told itself
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex         // guards what follows
	bucket  jetstream.KeyValue // nil until a majority was reached
	used    jetstream.KeyValue // nil until a majority was reached, as the next one
	held    jetstream.KeyValue
	values  map[string]value
	known   bool          // all values that there were are in values
	changed chan struct{} // closed with the next change
}

// value is one of the values.
type value struct {
	text     []byte
	revision uint64
}

// Open follows the values from now on, until Close. It waits for nobody; nc stays its caller's.
func Open(nc *nats.Conn, o Options) (*Register, error) {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open the register: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Register{o: o, log: o.Log, nc: nc, js: js, process: rand.Text(), stop: stop, values: map[string]value{}, changed: make(chan struct{})}
	r.running.Go(func() { r.follow(ctx) })
	r.running.Go(func() { r.prepare(ctx) })
	return r, nil
}

// Close ends the following. Nothing of the register runs when it returns.
func (r *Register) Close() {
	r.stop()
	r.running.Wait()
}

// Get is a value as it is known here, which may be a moment old, and its revision; 0 if there is none. known is false until the values were read for the first time. The text
// must not be changed.
func (r *Register) Get(name string) (text []byte, revision uint64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.values[name]
	return v.text, v.revision, r.known
}

// Known reports whether the values were read for the first time.
func (r *Register) Known() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// Wait returns once the values were read for the first time. The error is [cluster.ErrNoQuorum] if that takes too long, as it does without a majority, or if ctx ends.
func (r *Register) Wait(ctx context.Context) error {
	late := time.NewTimer(openTries * openPatience)
	defer late.Stop()
	for {
		changed := r.Changed()
		if r.Known() {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return cluster.ErrNoQuorum
		case <-ctx.Done():
			return cluster.ErrNoQuorum
		}
	}
}

// Changed is closed once Get may say something else than it would now.
func (r *Register) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Put replaces the value of a revision, 0 for none, and is the new revision. The error is [cluster.ErrChanged] if the value has another revision,
// or [cluster.ErrNoQuorum]. After any other it is not known whether it was replaced.
func (r *Register) Put(ctx context.Context, name string, text []byte, after uint64) (revision uint64, err error) {
	r.mu.Lock()
	bucket := r.bucket
	r.mu.Unlock()
	err = cluster.Agree(ctx, bucket, func(ctx context.Context, b jetstream.KeyValue) (err error) {
		if after == 0 {
			revision, err = b.Create(ctx, name, text)
		} else {
			revision, err = b.Update(ctx, name, text, after)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("change %s: %w", name, err)
	}
	r.learn(name, value{text, revision})
	return revision, nil
}

// learn takes a value, unless a later one is known.
func (r *Register) learn(name string, v value) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v.revision <= r.values[name].revision {
		return
	}
	r.values[name] = v
	r.tell()
}

// tell has those know that wait for a change. mu is held.
func (r *Register) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// follow keeps what is known here of the values, from the time on when a majority is there.
func (r *Register) follow(ctx context.Context) {
	reached := r.nc.StatusChanged(nats.CONNECTED)
	defer r.nc.RemoveStatusListener(reached)
	var told string
	for ctx.Err() == nil {
		err := r.followOnce(ctx, reached)
		if ctx.Err() != nil || err == nil {
			continue
		}
		if err.Error() != told { // once for each reason
			told = err.Error()
			r.log.Info("what the machines keep together is not read yet", zap.Error(err))
		}
		_ = ratelimit.Sleep(ctx, retryEvery)
	}
}

// followOnce follows them until NATS is reached anew: what follows them there may not know of that.
func (r *Register) followOnce(ctx context.Context, reached <-chan nats.Status) error {
	asked, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	bucket, err := cluster.OpenBucket(asked, r.js, jetstream.KeyValueConfig{
		Bucket: "nexus_" + r.o.Cluster + "_register", Description: "what the machines keep together", Replicas: r.o.Replicas, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return err
	}
	watch, err := bucket.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = watch.Stop() }()
	r.mu.Lock()
	r.bucket = bucket
	r.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-reached:
			return nil
		case entry, ok := <-watch.Updates():
			switch {
			case !ok:
				return errors.New("the values come no more")
			case entry == nil:
				r.mu.Lock()
				r.known = true
				r.tell()
				r.mu.Unlock()
			case entry.Operation() == jetstream.KeyValuePut:
				r.learn(entry.Key(), value{entry.Value(), entry.Revision()})
			}
		}
	}
}

// prepare makes what is of names and of texts: as long as a machine is lost, NATS makes nothing that all are to have.
func (r *Register) prepare(ctx context.Context) {
	for ctx.Err() == nil {
		_, used := r.openUsed(ctx)
		_, held := r.openHeld(ctx)
		if used == nil && held == nil {
			return
		}
		_ = ratelimit.Sleep(ctx, retryEvery)
	}
}

// openTries is how often a bucket is asked for before it is needed, each time for openPatience at most: of several machines that
// make it at once, some get no answer.
const openTries = 4

// open opens a bucket, which is kept in at.
func (r *Register) open(ctx context.Context, at *jetstream.KeyValue, config jetstream.KeyValueConfig) (bucket jetstream.KeyValue, err error) {
	r.mu.Lock()
	bucket = *at
	r.mu.Unlock()
	if bucket != nil {
		return bucket, nil
	}
	for range openTries {
		asked, cancel := context.WithTimeout(ctx, openPatience)
		bucket, err = cluster.OpenBucket(asked, r.js, config)
		cancel()
		if err == nil || ratelimit.Sleep(ctx, retryEvery) != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	*at = bucket
	return bucket, nil
}
