package mirror

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/protocol/ratelimit"
)

const (
	// leastObject is from how many bytes on, written at once, what a file has more goes to the object store, and maxObject is how many bytes an object has. It is
	// one message then: of several, which the library sends without waiting, those come late that found nobody who leads the others, so the object would be in disorder.
	leastObject, maxObject = chunk, 512 << 10
	// objectPatience bounds a try to write or to read one.
	objectPatience = 3 * time.Second
	// putPatience bounds the writing of an object, beside which the stream of files goes on to take messages.
	putPatience = 6 * time.Second
	// bucketPatience bounds the wait for the bucket when an object is read, and bucketAgain is how long is not asked for it again if it was in vain.
	bucketPatience, bucketAgain = 10 * time.Second, time.Minute
	// lookAgain is how often an object is looked for that is not found: one that begins to lead the others may have to read what it has first.
	lookAgain = 5
)

var (
	// errNoObjects says that an object cannot be written, though other messages can: there is no bucket, or no room in it.
	errNoObjects = errors.New("there is no object store")
	// errNoObject says that there is no object of a name, or not all of it.
	errNoObject = errors.New("an object of the mirror is missing")
)

// bucket is where the machines of a cluster keep what is large of the files of agents: an object store of JetStream. Each object has a name of its own, by chance, and
// is written once.
type bucket struct {
	config jetstream.StreamConfig // of the stream below it
	name   string

	mu     sync.Mutex // guards what follows, and is held while the bucket is opened
	store  jetstream.ObjectStore
	stream jetstream.Stream
	failed time.Time // when it was tried last, in vain
	why    error     // then
	// unnamed are the bytes that were of no object at the last Sweep.
	unnamed map[string]bool
}

// newBucket is that of a cluster, which is made when it is opened. AllowDirect is left out, which the library would set: a machine that lags behind would answer
// that there is no object.
func newBucket(cluster string, replicas int, bytes int64) *bucket {
	name := "nexus_" + cluster + "_objects"
	return &bucket{name: name, config: jetstream.StreamConfig{
		Name: "OBJ_" + name, Description: "what is large of the files of agents", Subjects: []string{"$O." + name + ".C.>", "$O." + name + ".M.>"}, Replicas: replicas,
		Storage: jetstream.FileStorage, MaxBytes: cmp.Or(bytes, -1), Discard: jetstream.DiscardNew, AllowRollup: true,
	}}
}

// open opens the bucket. It waits for so long.
func (b *bucket) open(ctx context.Context, js jetstream.JetStream, patience time.Duration) (jetstream.ObjectStore, jetstream.Stream, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.store != nil {
		return b.store, b.stream, nil
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := create(bounded, js, b.config)
	var store jetstream.ObjectStore
	if err == nil {
		store, err = js.ObjectStore(bounded, b.name)
	}
	if err != nil {
		if _, refused := errors.AsType[*jetstream.APIError](err); ctx.Err() == nil && !refused { // a refusal, as of a machine that is away, costs no time
			b.failed, b.why = time.Now(), fmt.Errorf("%w: %w", errNoObjects, err)
		}
		return nil, nil, fmt.Errorf("%w: %w", errNoObjects, err)
	}
	b.store, b.stream = store, stream
	return store, stream, nil
}

// chunk is where the bytes of an object are, by the name that the library has given it.
func (b *bucket) chunk(nuid string) string { return "$O." + b.name + ".C." + nuid }

// avoided is why nothing is written for now; nil if something may be.
func (b *bucket) avoided() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.why == nil || time.Since(b.failed) >= bucketAgain {
		return nil
	}
	return b.why
}

// avoid has nothing written for a minute: what an agent says goes on in the stream of files meanwhile.
func (b *bucket) avoid(why error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed, b.why = time.Now(), fmt.Errorf("%w: %w", errNoObjects, why)
	return b.why
}

// encoded is a name as one token of a subject.
func encoded(agent string) string { return base64.RawURLEncoding.EncodeToString([]byte(agent)) }

// newObject is a name that no object had: those of one agent and epoch begin alike.
func newObject(agent string, epoch uint64) string {
	return encoded(agent) + "." + strconv.FormatUint(epoch, 10) + "." + rand.Text()
}

// ofObject is of which agent, and by the owner of which epoch, an object is; ok is false for what is none of ours.
func ofObject(name string) (agent string, epoch uint64, ok bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return "", 0, false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[0])
	epoch, wrong := strconv.ParseUint(parts[1], 10, 64)
	return string(text), epoch, err == nil && wrong == nil
}

func digest(piece []byte) string {
	sum := sha256.Sum256(piece)
	return hex.EncodeToString(sum[:])
}

// put writes an object, under another name each time that it is not known whether it was taken: what of an earlier try comes late changes nothing. tried gets the names.
func (s *Stream) put(ctx context.Context, agent string, epoch uint64, piece []byte, tried func(string)) (name string, err error) {
	if err := s.bucket.avoided(); err != nil {
		return "", err
	}
	store, _, err := s.bucket.open(ctx, s.js, putPatience)
	if err != nil {
		return "", err
	}
	bounded, cancel := context.WithTimeout(ctx, putPatience)
	defer cancel()
	err = retryFor(bounded, objectPatience, func(ctx context.Context) error {
		name = newObject(agent, epoch)
		tried(name)
		_, err := store.Put(ctx, jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: maxObject}}, bytes.NewReader(piece))
		return known(err)
	})
	if err != nil && ctx.Err() == nil {
		err = s.bucket.avoid(err)
	}
	return name, err
}

// get reads the object of a change. It asks for the one message: the library would have NATS make a consumer for each object.
func (s *Stream) get(ctx context.Context, c change) (piece []byte, err error) {
	store, stream, err := s.bucket.open(ctx, s.js, bucketPatience)
	if err != nil {
		return nil, err
	}
	for look := 1; ; look++ {
		var missing bool
		err := retryFor(ctx, objectPatience, func(ctx context.Context) error {
			info, err := store.GetInfo(ctx, c.Object)
			if err == nil {
				var raw *jetstream.RawStreamMsg
				if raw, err = stream.GetLastMsgForSubject(ctx, s.bucket.chunk(info.NUID)); err == nil {
					piece = raw.Data
				}
			}
			if missing = errors.Is(err, jetstream.ErrObjectNotFound) || errors.Is(err, jetstream.ErrMsgNotFound); missing {
				return nil
			}
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case !missing && len(piece) == c.Size && digest(piece) == c.SHA256:
			return piece, nil
		case look == lookAgain || ratelimit.Sleep(ctx, retryEvery) != nil:
			return nil, errNoObject
		}
	}
}

// remove removes an object, its bytes first: as long as it is listed it can be removed again.
func (s *Stream) remove(ctx context.Context, name string) error {
	store, stream, err := s.bucket.open(ctx, s.js, bucketPatience)
	if err != nil {
		return err
	}
	return retry(ctx, func(ctx context.Context) error {
		info, err := store.GetInfo(ctx, name, jetstream.GetObjectInfoShowDeleted())
		if errors.Is(err, jetstream.ErrObjectNotFound) {
			return nil
		}
		if err == nil {
			err = s.purgeChunks(ctx, stream, info.NUID)
		}
		if err != nil {
			return err
		}
		return stream.Purge(ctx, jetstream.WithPurgeSubject("$O."+s.bucket.name+".M."+base64.URLEncoding.EncodeToString([]byte(name))))
	})
}

func (s *Stream) purgeChunks(ctx context.Context, stream jetstream.Stream, nuid string) error {
	return stream.Purge(ctx, jetstream.WithPurgeSubject(s.bucket.chunk(nuid)))
}
