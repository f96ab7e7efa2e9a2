package mirror

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/fixtures"
	"nexus.internal/supervisor/cluster/clustertest"
)

// recorded is a message as programs of format 1 write it. It stays as it is: what machines have shipped is read by later programs.
func recorded(t *testing.T) []byte {
	t.Helper()
	return fixtures.Read(t, "cluster/mirror-1.txt")
}

// A message that was recorded is read, and written as it was; one of a later format is neither read nor damaged.
func TestRecordedMessage(t *testing.T) {
	data := recorded(t)
	m, pieces, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	want := message{Format: 1, Epoch: 7, Number: 3, Complete: true, About: []byte(`{"machine":"a","cwd":"/srv/work","shared":true}`), Changes: []change{
		{Path: "worker.jsonl", Size: 4}, {Path: "worker.records/00000000000000000001.jsonl", At: 16384, Size: 3, Patch: true}, {Path: "worker.files/old", Gone: true},
	}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]byte{[]byte("one\n"), []byte("two"), {}}, pieces); diff != "" {
		t.Errorf("the pieces (-want +got):\n%s", diff)
	}
	if again, err := m.encode(pieces); err != nil || !bytes.Equal(again, data) {
		t.Errorf("it is written as %q, %v; if that is meant, it is another format", again, err)
	}
	if _, _, err := decode(newer(t)); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "has format 3, and this program reads 2: upgrade it") {
		t.Errorf("of a later format: %v", err)
	}
	if _, _, err := decode(bytes.Replace(data, []byte(`"epoch"`), []byte(`"later":{},"epoch"`), 1)); err != nil {
		t.Errorf("with a member that is not known: %v", err)
	}
}

// newer is a message of a later format.
func newer(t *testing.T) []byte {
	t.Helper()
	return bytes.Replace(recorded(t), []byte(`"format":1`), []byte(`"format":3`), 1)
}

// What a later program has shipped stays as it is, whatever earlier ones do: its owner before, and one that takes the agent over.
func testLaterFormat(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	first := take(t, machines[0], 7, root)
	write(t, root, "worker.jsonl", "one\n")
	ship(t, first)
	if _, err := machines[1].JetStream.Publish(within(t), first.subject, newer(t)); err != nil {
		t.Fatal(err)
	}
	write(t, root, "worker.jsonl", "one\ntwo\n")
	s := stream(t, machines[2])
	_, taken := s.Take(within(t), Options{Agent: t.Name(), Epoch: 9, Root: other, Paths: paths})
	_, _, asked := s.Last(within(t), t.Name())
	for what, err := range map[string]error{
		"the owner before ships": first.Sync(within(t)), "it removes the agent": first.Remove(within(t)), "another one takes it over": taken, "another one asks for it": asked,
		"another one saves it": s.Save(within(t), Options{Agent: t.Name(), Root: other, Paths: paths, Scratch: filepath.Join(t.TempDir(), "scratch")}),
	} {
		if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "upgrade it") {
			t.Errorf("%s: %v", what, err)
		}
	}
	last, err := s.stream.GetLastMsgForSubject(within(t), first.subject)
	if err != nil || !bytes.Equal(last.Data, newer(t)) {
		t.Errorf("what was shipped last is %q, %v", last.Data, err)
	}
	same(t, tree(t, other), map[string]string{})
}
