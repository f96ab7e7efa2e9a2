package accepted

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/protocol/format"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/cluster"
)

var (
	// ErrFenced says that a later owner has the agent, or that the list is not known to be this owner's any more.
	ErrFenced = errors.New("another machine has accepted prompts of the agent since")
	// ErrLong says that as many prompts were accepted since the files were shipped as the list has.
	ErrLong = errors.New("the list of accepted prompts is full")
	// ErrAlone says that the list would be in the memory of one server.
	ErrAlone = errors.New("NATS keeps it on one server alone")
)

const (
	// MaxPrompts bounds a list. It is far below the number of outcomes that the files of an agent have, so that none of those is on the list whose outcome is
	// forgotten.
	MaxPrompts = 32
	// keptFor is for how long a list is kept that does not change. Long before, the files have been shipped.
	keptFor = time.Hour
	// maxBytes bounds all lists together, maxList one of them.
	maxBytes, maxList = 64 << 20, 64 << 10
)

// Prompt is one that was accepted.
type Prompt struct {
	ID     string `json:"request_id"`
	SHA256 string `json:"sha256"` // of what it says, in hexadecimal digits
}

// value is a list as the machines have it.
type value struct {
	Epoch    uint64   `json:"epoch"` // of the owner
	Accepted []Prompt `json:"accepted,omitempty"`
}

// Bucket has the lists of all agents. Its methods may be called from any goroutine.
type Bucket struct{ kv jetstream.KeyValue }

// Open opens the bucket of a cluster, and makes it if there is none: in the memory of so many machines. It waits for a majority of them, as long as ctx lasts.
func Open(ctx context.Context, js jetstream.JetStream, of string, replicas int) (*Bucket, error) {
	kv, err := cluster.OpenBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: "nexus_" + of + "_accepted", Description: "which prompts were accepted lately", Replicas: replicas, Storage: jetstream.MemoryStorage,
		TTL: keptFor, MaxBytes: maxBytes, MaxValueSize: maxList,
	})
	if err != nil {
		return nil, fmt.Errorf("open the lists of accepted prompts: %w", err)
	}
	status, err := kv.Status(ctx)
	if err == nil && status.Config().Replicas < 2 {
		err = ErrAlone
	}
	if err != nil {
		return nil, fmt.Errorf("open the lists of accepted prompts: %w", err)
	}
	return &Bucket{kv}, nil
}

func key(agent string) string { return base64.RawURLEncoding.EncodeToString([]byte(agent)) }

// Take makes the list of an agent this owner's, unless a later one is known, which is [ErrFenced]. What was on it stays until it is shipped, and is returned; with
// fresh it is of an earlier agent of that name, and is removed. The error is a *format.LaterError for a list of a later format, which stays.
func (b *Bucket) Take(ctx context.Context, agent string, epoch uint64, fresh bool) (*List, []Prompt, error) {
	l := &List{kv: b.kv, key: key(agent), epoch: epoch}
	for {
		var last value
		entry, err := cluster.Read(ctx, b.kv, l.key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			l.revision = 0
		case err == nil:
			l.revision = entry.Revision()
			err = format.Accepted.Decode(entry.Value(), &last)
		}
		if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil, nil, fmt.Errorf("take the accepted prompts of %s: %w", agent, err)
		}
		if last.Epoch > epoch {
			return nil, nil, fmt.Errorf("take the accepted prompts of %s: %w", agent, ErrFenced)
		}
		if l.accepted = last.Accepted; fresh {
			l.accepted = nil
		}
		err = l.write(ctx, l.accepted)
		if err == nil {
			return l, slices.Clone(l.accepted), nil
		}
		// It was read of a machine that lags behind, or is another one's now, or no machine was there that takes it.
		if !errors.Is(err, ErrFenced) && !errors.Is(err, jetstream.ErrNoStreamResponse) {
			return nil, nil, fmt.Errorf("take the accepted prompts of %s: %w", agent, err)
		}
		if ended := ratelimit.Sleep(ctx, retryEvery); ended != nil {
			return nil, nil, fmt.Errorf("take the accepted prompts of %s: %w: %w", agent, ended, err)
		}
	}
}

// retryEvery is between two tries to take a list.
const retryEvery = 20 * time.Millisecond

// List is that of one owner. Its methods may be called from any goroutine.
type List struct {
	kv    jetstream.KeyValue
	key   string
	epoch uint64

	mu       sync.Mutex // held while the list is changed
	revision uint64     // of the last change, ours; 0 if there is no list
	accepted []Prompt   // oldest first
	shipped  int        // how many of those that were ever on it are not any more
}

// Epoch is the owner's.
func (l *List) Epoch() uint64 { return l.epoch }

// Accept returns once a majority of the machines knows that a prompt was accepted. After an error it is not known whether they do, unless that is [ErrLong], and the list
// is of no use: Take returns another one.
func (l *List) Accept(ctx context.Context, p Prompt) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.accepted) >= MaxPrompts {
		return ErrLong
	}
	more := append(slices.Clone(l.accepted), p)
	if err := l.write(ctx, more); err != nil {
		return err
	}
	l.accepted = more
	return nil
}

// Mark is the place in the list behind what is on it, for [List.Shipped].
func (l *List) Mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shipped + len(l.accepted)
}

// Shipped takes what stands before a mark from the list, with the next change: the files say it.
func (l *List) Shipped(mark int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted = l.accepted[max(0, mark-l.shipped):]
	l.shipped = max(l.shipped, mark)
}

// write replaces the list. mu is held, or nobody else has it yet.
func (l *List) write(ctx context.Context, all []Prompt) error {
	text, err := json.Marshal(value{l.epoch, all})
	if err != nil {
		return err
	}
	var revision uint64
	if l.revision == 0 {
		revision, err = l.kv.Create(ctx, l.key, text)
	} else {
		revision, err = l.kv.Update(ctx, l.key, text, l.revision)
	}
	switch {
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return ErrFenced
	case err != nil:
		return err
	}
	l.revision = revision
	return nil
}

// Forget removes the list of an agent that is no more.
func (b *Bucket) Forget(ctx context.Context, agent string) error { return b.kv.Delete(ctx, key(agent)) }
