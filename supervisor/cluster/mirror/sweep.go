package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Sweep removes objects that nothing names: those for which stray asks, of all that there are of an agent, and bytes without an object, if they were there at the Sweep before.
// A process that is killed leaves such behind.
func (s *Stream) Sweep(ctx context.Context, stray func(agent string, names []string) []string) error {
	store, stream, err := s.bucket.open(ctx, s.js, bucketPatience)
	if err != nil {
		return fmt.Errorf("sweep the object store: %w", err)
	}
	chunks := s.bucket.chunk("")
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunks+">")) // before the list: what is written meanwhile is listed
	if err != nil {
		return fmt.Errorf("sweep the object store: %w", err)
	}
	all, err := store.List(ctx, jetstream.ListObjectsShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return fmt.Errorf("sweep the object store: %w", err)
	}
	agents, unnamed := map[string][]string{}, map[string]bool{}
	for subject := range info.State.Subjects {
		unnamed[strings.TrimPrefix(subject, chunks)] = true
	}
	for _, object := range all {
		delete(unnamed, object.NUID)
		if agent, _, ok := ofObject(object.Name); ok {
			agents[agent] = append(agents[agent], object.Name)
		}
	}
	before := s.bucket.sweeps(unnamed)
	var failed error
	for nuid := range unnamed {
		if before[nuid] {
			failed = errors.Join(failed, s.purgeChunks(ctx, stream, nuid))
		}
	}
	for agent, names := range agents {
		for _, name := range stray(agent, names) {
			if ctx.Err() == nil {
				failed = errors.Join(failed, s.remove(ctx, name))
			}
		}
	}
	if failed != nil {
		return fmt.Errorf("sweep the object store: %w", failed)
	}
	return ctx.Err()
}

// sweeps notes which bytes are of no object, and says which were when it was called before.
func (b *bucket) sweeps(unnamed map[string]bool) (before map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before, b.unnamed = b.unnamed, unnamed
	return before
}

// Stray are those of some objects of the agent that its files do not have, and that this owner or an earlier one wrote; none until this one has shipped the files.
func (m *Mirror) Stray(names []string) (stray []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if _, epoch, ok := ofObject(name); ok && m.whole && epoch <= m.o.Epoch && !m.held.named[name] {
			stray = append(stray, name)
		}
	}
	return stray
}
