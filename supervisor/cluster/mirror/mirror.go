package mirror

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/protocol/ratelimit"
	"nexus.internal/protocol/safefile"
)

// Errors of a mirror.
var (
	// ErrFenced says that another owner has the agent: nothing more of this one's is taken.
	ErrFenced = errors.New("another machine has the agent, and what this one has of it is taken no more")
	// ErrTooLarge says that an agent's files are more than are kept.
	ErrTooLarge = errors.New("the agent's files are too large to be kept on several machines")
	// ErrFull says that the stream has as many bytes as it may have, or a machine has no room for more: what is there stays.
	ErrFull = errors.New("the machines keep as much of agents as they may")
	// ErrUnreadable says that what was shipped is damaged, or of a later version: asking again does not help.
	ErrUnreadable = errors.New("it is not read")
	// ErrNothing says that no files of an agent were shipped.
	ErrNothing = errors.New("the machines have no files of the agent")
)

const (
	// chunk is how many bytes of files one message has at most. NATS takes 1 MiB.
	chunk = 256 << 10
	// maxBytes bounds the files of one agent, if the options do not, and maxAbout what is said of it.
	maxBytes, maxAbout = 256 << 20, 64 << 10
	// Files are shipped whole again once growth times their size was shipped, and slack more.
	growth, slack = 4, 1 << 20
	// firstPatience bounds each of the firstTries at a question to all machines: the one that leads them may just have gone, and
	// for up to 9 s none does. Later ones have patience. RetryEvery is between two.
	firstTries, firstPatience, patience = 10, time.Second, 8 * time.Second
	// purgePatience bounds the wait for the removal of what is not needed any more.
	purgePatience = 300 * time.Millisecond
	// unavailable is the first code of errors that pass, as in HTTP.
	unavailable = 500
	retryEvery  = 200 * time.Millisecond
	// noReplicas is what a NATS of one server says of more than one replica (JSStreamReplicasNotSupportedErr).
	noReplicas = 10074
)

// full is how a server of NATS says that there is no room: JSStreamStoreFailedErrF, of the stream's own bound, JSAccountResourcesExceededErr,
// JSInsufficientResourcesErr and JSStorageResourcesExceededErr.
var full = []jetstream.ErrorCode{10077, 10002, 10023, 10047}

// Stream is where the machines of a cluster keep the files of their agents. Its methods may be called from any goroutine.
type Stream struct {
	js       jetstream.JetStream
	stream   jetstream.Stream
	bucket   *bucket
	subjects string // but for the agent
}

// Open opens the stream of a cluster, and its object store, and makes them if there are none: on so many machines, 1 to 5, or on one if NATS has one
// server alone. It waits for a majority of them. Together, the files have at most so many bytes in each of both; 0 is no bound but the disks.
func Open(ctx context.Context, js jetstream.JetStream, cluster string, replicas int, bytes int64) (*Stream, error) {
	s := &Stream{js: js, bucket: newBucket(cluster, replicas, bytes), subjects: "nexus." + cluster + ".files."}
	var err error
	s.stream, err = create(ctx, js, jetstream.StreamConfig{
		Name: "nexus_" + cluster + "_files", Description: "the files of agents", Subjects: []string{s.subjects + "*"}, Replicas: replicas,
		Storage: jetstream.FileStorage, MaxBytes: cmp.Or(bytes, -1), Discard: jetstream.DiscardNew, // the older ones are needed
		MaxMsgSize: 2*chunk + maxAbout, // no AllowDirect: the last message is asked of a machine that may lag behind
	})
	if err != nil {
		return nil, fmt.Errorf("open the stream of files: %w", err)
	}
	_, _, _ = s.bucket.open(ctx, js, objectPatience) // without it all goes into the stream
	return s, nil
}

// create makes a stream as wanted, or changes it. It waits for a majority. A NATS of one server keeps it once.
func create(ctx context.Context, js jetstream.JetStream, wanted jetstream.StreamConfig) (stream jetstream.Stream, err error) {
	err = retry(ctx, func(ctx context.Context) (err error) {
		stream, err = js.CreateOrUpdateStream(ctx, wanted)
		if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.ErrorCode == noReplicas {
			wanted.Replicas = 1
			stream, err = js.CreateOrUpdateStream(ctx, wanted)
		}
		return err
	})
	return stream, err
}

func (s *Stream) subject(agent string) string {
	return s.subjects + encoded(agent)
}

// Last is the epoch of the owner that wrote of an agent last, and what it said about it. It is 0 if none did.
func (s *Stream) Last(ctx context.Context, agent string) (epoch uint64, about jsontext.Value, err error) {
	head, _, err := s.last(ctx, s.subject(agent))
	if err != nil {
		return 0, nil, fmt.Errorf("mirror %s: %w", agent, err)
	}
	return head.Epoch, head.About, nil
}

// last is the head of a subject's last message; with number 0 if there is none.
func (s *Stream) last(ctx context.Context, subject string) (head message, sequence uint64, err error) {
	err = retry(ctx, func(ctx context.Context) error {
		raw, err := s.stream.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		sequence = raw.Sequence
		head, _, err = decode(raw.Data)
		return err
	})
	return head, sequence, err
}

// Options say what is mirrored.
type Options struct {
	Agent string
	// Epoch is that of the claim by which this machine has the agent.
	Epoch uint64
	// Root is a directory, and Paths are the files and directories below it that are the agent's. They
	// need not exist.
	Root  string
	Paths []string
	// Growing are those of Paths, or what lies in them, to which is only appended, or which are replaced, but for what stands in the first 16 KiB: of what the others
	// have, that and the end are compared, unless [Mirror.Compare] says otherwise.
	Growing []string
	// Log is the one of Paths that is a log: a directory with files NAME.jsonl that are only appended to, of which later ones have greater names. How far it goes tells
	// whether what is here is older than what was shipped. It is "" if there is none.
	Log string
	// Scratch is a directory of mirrors alone, in the file system of Root: what lies in it is removed. It is made
	// when it is needed.
	Scratch string
	// MaxBytes bounds the files; 0 means 256 MiB.
	MaxBytes int64
}

// Mirror ships the files of one agent. Its methods may be called from any goroutine; one runs at a time.
type Mirror struct {
	o       Options
	s       *Stream
	subject string
	root    *os.Root
	before  uint64 // the epoch of the owner before

	mu      sync.Mutex
	last    uint64 // the number of the last message of the subject, ours
	fence   uint64 // that of Take's
	writer  string // chance
	number  uint64 // how many we have tried to send
	shipped map[string]shipped
	whole   bool  // the files were shipped whole by us
	sent    int64 // bytes since they were
	held    held  // what the messages name
	names   bool  // the messages before Take name objects, which held does not know yet
	objects bool  // what is large goes to the object store
	about   jsontext.Value
	log     extent // of what the others have
	all     bool   // the next Sync compares all
	block   [blockBytes]byte
}

// Take makes this machine the one whose messages are taken, unless a later owner is known, which is [ErrFenced]. What the
// earlier one said about the agent goes on to hold. Its Close must be called.
func (s *Stream) Take(ctx context.Context, o Options) (*Mirror, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = maxBytes
	}
	for _, p := range o.Paths {
		if !filepath.IsLocal(p) || p == "." {
			return nil, fmt.Errorf("mirror %s: %q is no path below %s", o.Agent, p, o.Root)
		}
	}
	m := &Mirror{o: o, s: s, subject: s.subject(o.Agent), shipped: map[string]shipped{}, writer: rand.Text()}
	if err := m.take(ctx); err != nil {
		return nil, fmt.Errorf("mirror %s: %w", o.Agent, err)
	}
	var err error
	if m.root, err = safefile.OpenRoot(o.Root); err != nil {
		return nil, fmt.Errorf("mirror %s: %w", o.Agent, err)
	}
	return m, nil
}

func (m *Mirror) take(ctx context.Context) error {
	last, sequence, err := m.s.last(ctx, m.subject)
	if err != nil {
		return err
	}
	if last.Epoch > m.o.Epoch {
		return ErrFenced
	}
	m.last, m.before, m.about, m.log, m.names = sequence, last.Epoch, last.About, last.Log, last.Objects
	if err := m.publish(ctx, message{}); err != nil {
		return err
	}
	m.fence = m.last
	return nil
}

// Before is the epoch of the owner whose message was the last one before Take; 0 if there was none.
func (m *Mirror) Before() uint64 { return m.before }

// Said is what the owner says of the agent with each message: what About was given, or before it, what the owner before Take said.
func (m *Mirror) Said() jsontext.Value {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.about
}

// About says something of the agent with each message from now on, at most 64 KiB: another machine reads it by [Stream.Last].
func (m *Mirror) About(about jsontext.Value) error {
	if len(about) > maxAbout {
		return fmt.Errorf("mirror %s: what is said about it has %d bytes, and may have %d", m.o.Agent, len(about), maxAbout)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.about = about
	return nil
}

// UseObjects says whether what is large goes to the object store from now on, which earlier versions do not read. It does not before.
func (m *Mirror) UseObjects(use bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects = use
}

// Compare has the next Sync compare all that growing files have: something was written over.
func (m *Mirror) Compare() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = true
}

// retry asks until there is an answer that is none of a majority that is missing, or ctx ends.
func retry(ctx context.Context, ask func(context.Context) error) error {
	return retryFor(ctx, firstPatience, ask)
}

// retryFor is retry with another patience for each of the firstTries.
func retryFor(ctx context.Context, first time.Duration, ask func(context.Context) error) error {
	for try := 0; ; try++ {
		wait := first
		if try >= firstTries {
			wait = patience
		}
		asked, cancel := context.WithTimeout(ctx, wait)
		err := ask(asked)
		cancel()
		refused, answered := errors.AsType[*jetstream.APIError](err)
		if err == nil || answered && refused.Code < unavailable || errors.Is(err, ErrFenced) || errors.Is(err, ErrUnreadable) || errors.Is(err, ErrFull) || ctx.Err() != nil {
			return err
		}
		if ratelimit.Sleep(ctx, retryEvery) != nil {
			return err
		}
	}
}

// publish sends one message behind the last one. After an error it is not known whether it was taken, unless the
// error is ErrFenced.
func (m *Mirror) publish(ctx context.Context, msg message, pieces ...[]byte) error {
	m.number++
	msg.Epoch, msg.Number, msg.Writer, msg.About, msg.Log = m.o.Epoch, m.number, m.writer, m.about, m.log
	msg.Objects = m.names || len(m.held.named) > 0
	data, err := msg.encode(pieces)
	if err != nil {
		return err
	}
	err = retry(ctx, func(ctx context.Context) error {
		ack, err := m.s.js.Publish(ctx, m.subject, data, jetstream.WithExpectLastSequencePerSubject(m.last))
		if err == nil {
			m.last = ack.Sequence
			return nil
		}
		refused, is := errors.AsType[*jetstream.APIError](err)
		if err := known(err); errors.Is(err, ErrFull) {
			return err
		}
		if !is || refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence && refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequenceConstant {
			return err
		}
		head, sequence, unknown := m.s.last(ctx, m.subject)
		switch {
		case unknown != nil:
			return unknown
		case head.Epoch > msg.Epoch:
			return ErrFenced
		}
		m.last = sequence
		if head.Epoch != msg.Epoch || head.Number != msg.Number || head.Writer != msg.Writer { // an earlier one, which came late: once more, behind it
			return errors.New(refused.Description)
		}
		return nil // the answer to an earlier try was lost
	})
	if err == nil {
		m.held.take(msg)
	}
	return err
}

// known is an error of NATS, which is ErrFull if there is no room.
func known(err error) error {
	if refused, is := errors.AsType[*jetstream.APIError](err); is && slices.Contains(full, refused.ErrorCode) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// Close ends the mirror; what was shipped stays. The agent is still this machine's.
func (m *Mirror) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.root.Close() // it was read from
}

// Remove removes what the machines have of the agent, which is no more, but for one message, by which earlier owners
// are still refused.
func (m *Mirror) Remove(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.about, m.log = nil, extent{}
	err := m.knowObjects(ctx)
	gone := m.held.named
	m.held = held{}
	if err == nil {
		err = m.publish(ctx, message{}) // a later owner's stays
	}
	if errors.Is(err, ErrFull) { // what is removed makes room for it
		if err = m.purge(ctx); err == nil {
			err = m.publish(ctx, message{})
		}
	}
	if err == nil {
		err = m.purge(ctx)
	}
	if err != nil {
		m.held.named = gone
		return fmt.Errorf("mirror %s: %w", m.o.Agent, err)
	}
	m.shipped, m.whole = map[string]shipped{}, false
	for name := range gone {
		if m.s.remove(ctx, name) != nil { // it is swept
			break
		}
	}
	return nil
}

// purge removes all that was shipped before the last message, which is ours.
func (m *Mirror) purge(ctx context.Context) error {
	return retry(ctx, func(ctx context.Context) error {
		return m.s.stream.Purge(ctx, jetstream.WithPurgeSubject(m.subject), jetstream.WithPurgeSequence(m.last))
	})
}

// ours reports whether a path is one that is mirrored.
func (m *Mirror) ours(path string) bool { return filepath.IsLocal(path) && among(path, m.o.Paths) }

// among reports whether a path is one of some, or lies in one.
func among(path string, some []string) bool {
	return slices.ContainsFunc(some, func(p string) bool {
		return path == p || strings.HasPrefix(path, p+string(filepath.Separator))
	})
}
