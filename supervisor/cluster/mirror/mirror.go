package mirror

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

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
	// ErrNothing says that no files of an agent were shipped.
	ErrNothing = errors.New("the machines have no files of the agent")
)

const (
	streamName = "nexus_mirror"
	subjects   = "nexus.mirror."
	// chunk is how many bytes of files one message has at most. NATS takes 1 MiB.
	chunk = 256 << 10
	// maxBytes bounds the files of one agent, if the options do not.
	maxBytes = 256 << 20
	// Files are shipped whole again once growth times their size was shipped, and slack more.
	growth, slack = 4, 1 << 20
	// patience bounds one question to all machines, retryEvery is between two.
	patience = 5 * time.Second
	// unavailable is the first code of errors that pass, as in HTTP.
	unavailable = 500
	retryEvery  = 200 * time.Millisecond
)

// Options say what is mirrored.
type Options struct {
	Agent string
	// Epoch is that of the claim by which this machine has the agent.
	Epoch uint64
	// Root is a directory, and Paths are the files and directories below it that are the agent's. They
	// need not exist.
	Root  string
	Paths []string
	// Scratch is a directory of mirrors alone, in the file system of Root: what lies in it is removed. It is made
	// when it is needed.
	Scratch string
	// Replicas is how many machines keep them: 1 to 5.
	Replicas int
	// MaxBytes bounds the files; 0 means 256 MiB.
	MaxBytes int64
}

// Mirror ships the files of one agent. Its methods may be called from any goroutine; one runs at a time.
type Mirror struct {
	o       Options
	js      jetstream.JetStream
	stream  jetstream.Stream
	subject string
	root    *os.Root

	mu      sync.Mutex
	last    uint64 // the number of the last message of the subject, ours
	fence   uint64 // that of Take's
	number  uint64 // how many we have tried to send
	shipped map[string]shipped
	whole   bool  // the files were shipped whole by us
	sent    int64 // bytes since they were
}

// shipped is what is known of a file that the others have.
type shipped struct {
	id   safefile.FileID
	size int64
	tail []byte // its last bytes: a file that was cut and has grown again has others there
}

// Take makes this machine the one whose messages are taken, unless a later owner is known, which is [ErrFenced].
// Its Close must be called.
func Take(ctx context.Context, js jetstream.JetStream, o Options) (*Mirror, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = maxBytes
	}
	for _, p := range o.Paths {
		if !filepath.IsLocal(p) || p == "." {
			return nil, fmt.Errorf("mirror %s: %q is no path below %s", o.Agent, p, o.Root)
		}
	}
	m := &Mirror{o: o, js: js, subject: subjects + base64.RawURLEncoding.EncodeToString([]byte(o.Agent)), shipped: map[string]shipped{}}
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
	var err error
	err = retry(ctx, func(ctx context.Context) error {
		m.stream, err = m.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: streamName, Description: "the files of agents", Subjects: []string{subjects + "*"}, Replicas: m.o.Replicas,
			Storage: jetstream.FileStorage, MaxMsgSize: 2 * chunk, // no AllowDirect: the last message is asked of a machine that may lag behind
		})
		return err
	})
	if err != nil {
		return err
	}
	last, sequence, err := m.lastMessage(ctx)
	if err != nil {
		return err
	}
	if last.Epoch > m.o.Epoch {
		return ErrFenced
	}
	m.last = sequence
	if err := m.publish(ctx, message{}); err != nil {
		return err
	}
	m.fence = m.last
	return nil
}

// retry asks until there is an answer that is none of a majority that is missing, or ctx ends.
func retry(ctx context.Context, ask func(context.Context) error) error {
	for {
		asked, cancel := context.WithTimeout(ctx, patience)
		err := ask(asked)
		cancel()
		refused, answered := errors.AsType[*jetstream.APIError](err)
		if err == nil || answered && refused.Code < unavailable || errors.Is(err, ErrFenced) || ctx.Err() != nil {
			return err
		}
		if ratelimit.Sleep(ctx, retryEvery) != nil {
			return err
		}
	}
}

// lastMessage is the head of the subject's last message; with number 0 if there is none.
func (m *Mirror) lastMessage(ctx context.Context) (head message, sequence uint64, err error) {
	err = retry(ctx, func(ctx context.Context) error {
		raw, err := m.stream.GetLastMsgForSubject(ctx, m.subject)
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

// publish sends one message behind the last one. After an error it is not known whether it was taken, unless the
// error is ErrFenced.
func (m *Mirror) publish(ctx context.Context, msg message, pieces ...[]byte) error {
	m.number++
	msg.Epoch, msg.Number = m.o.Epoch, m.number
	data, err := msg.encode(pieces)
	if err != nil {
		return err
	}
	err = retry(ctx, func(ctx context.Context) error {
		ack, err := m.js.Publish(ctx, m.subject, data, jetstream.WithExpectLastSequencePerSubject(m.last))
		if err == nil {
			m.last = ack.Sequence
			return nil
		}
		refused, is := errors.AsType[*jetstream.APIError](err)
		if !is || refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence && refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequenceConstant {
			return err
		}
		head, sequence, unknown := m.lastMessage(ctx)
		switch {
		case unknown != nil:
			return unknown
		case head.Epoch > msg.Epoch:
			return ErrFenced
		}
		m.last = sequence
		if head.Epoch != msg.Epoch || head.Number != msg.Number { // an earlier one, which came late: once more, behind it
			return errors.New(refused.Description)
		}
		return nil // the answer to an earlier try was lost
	})
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
	if err := m.publish(ctx, message{}); err != nil { // a later owner's stays
		return fmt.Errorf("mirror %s: %w", m.o.Agent, err)
	}
	err := retry(ctx, func(ctx context.Context) error {
		return m.stream.Purge(ctx, jetstream.WithPurgeSubject(m.subject), jetstream.WithPurgeSequence(m.last))
	})
	if err != nil {
		return fmt.Errorf("mirror %s: %w", m.o.Agent, err)
	}
	m.shipped, m.whole = map[string]shipped{}, false
	return nil
}

// ours reports whether a path is one that is mirrored.
func (m *Mirror) ours(path string) bool {
	return filepath.IsLocal(path) && slices.ContainsFunc(m.o.Paths, func(p string) bool {
		return path == p || strings.HasPrefix(path, p+string(filepath.Separator))
	})
}
