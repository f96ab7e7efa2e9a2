package mirror

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/supervisor/cluster/clustertest"
)

// Where a message is missing among those that a machine has, nothing is laid out: the rest would look whole. That holds for the messages with which files are shipped whole, for
// later ones, and for the last one, of which the next owner's beginning tells.
func testMissingMessage(t *testing.T, machines []*clustertest.Machine) {
	for name, which := range map[string]func(all []uint64) uint64{
		"of the whole": func(all []uint64) uint64 { return all[2] }, "of what follows": func(all []uint64) uint64 { return all[len(all)-2] },
		"the last": func(all []uint64) uint64 { return all[len(all)-1] },
	} {
		root, other := t.TempDir(), t.TempDir()
		s := stream(t, machines[0])
		options := func(epoch uint64, root string) Options {
			return Options{Agent: t.Name() + name, Epoch: epoch, Root: root, Paths: paths, Growing: []string{"worker.jsonl", "worker.records"}, Log: "worker.records", Scratch: filepath.Join(t.TempDir(), "scratch")}
		}
		first, err := s.Take(within(t), options(7, root))
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		text := ""
		for i := range 3 {
			text += strings.Repeat(string(rune('a'+i)), 2*chunk+7)
			write(t, root, "worker.records/1.jsonl", text)
			ship(t, first)
		}
		var sequences []uint64
		for next := uint64(1); ; {
			raw, err := s.stream.GetMsg(within(t), next, jetstream.WithGetMsgSubject(first.subject))
			if err != nil {
				break
			}
			sequences, next = append(sequences, raw.Sequence), raw.Sequence+1
		}
		next, err := s.Take(within(t), options(8, other))
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		if err := s.stream.DeleteMsg(within(t), which(sequences)); err != nil {
			t.Fatal(err)
		}
		if err := next.Restore(within(t), nil); !errors.Is(err, errMissing) {
			t.Errorf("%s: %v", name, err)
		}
		same(t, tree(t, other), map[string]string{})
		if err := next.Remove(within(t)); err != nil {
			t.Error(err)
		}
	}
}

// A message of another process that had the same claim is none of ours, though it has the same number: ours is sent once more, and not taken for there.
func testNumberOfAnotherProcess(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	write(t, root, "worker.jsonl", "one\n")
	before := take(t, machines[0], 7, root)
	ship(t, before)
	after := take(t, machines[1], 7, root)
	late, err := message{Epoch: 7, Number: after.number + 1, Writer: before.writer}.encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := machines[0].JetStream.Publish(within(t), after.subject, late); err != nil {
		t.Fatal(err)
	}
	write(t, root, "worker.jsonl", "one\ntwo\n")
	ship(t, after)
	next := take(t, machines[2], 8, other)
	if err := next.Restore(within(t), nil); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, other), map[string]string{"worker.jsonl": "one\ntwo\n"})
	begins := 0
	for sequence := uint64(1); ; {
		raw, err := after.s.stream.GetMsg(within(t), sequence, jetstream.WithGetMsgSubject(after.subject))
		if err != nil {
			break
		}
		if head, _, err := decode(raw.Data); err == nil && head.Begins && head.Writer == after.writer {
			begins++
		}
		sequence = raw.Sequence + 1
	}
	if begins != 1 {
		t.Errorf("the files begin %d times", begins)
	}
}
