package mirror

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"nexus.internal/fixtures"
	"nexus.internal/supervisor/cluster/clustertest"
)

// takeLarge is take with objects.
func takeLarge(t *testing.T, m *clustertest.Machine, epoch uint64, root string) *Mirror {
	t.Helper()
	mirror := take(t, m, epoch, root)
	mirror.UseObjects(true)
	return mirror
}

// objectsOf are the names of the objects that there are of an agent, sorted.
func objectsOf(t *testing.T, s *Stream, agent string) (names []string) {
	t.Helper()
	store, _, err := s.bucket.open(within(t), s.js, long)
	if err != nil {
		t.Fatal(err)
	}
	all, err := store.List(within(t), jetstream.ListObjectsShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		t.Fatal(err)
	}
	for _, info := range all {
		if info.Chunks != 1 {
			t.Errorf("%s has %d messages", info.Name, info.Chunks)
		}
		if of, _, ok := ofObject(info.Name); ok && of == agent {
			names = append(names, info.Name)
		}
	}
	slices.Sort(names)
	return names
}

// needed are those that the files have.
func needed(m *Mirror) (names []string) {
	for _, all := range m.held.whole {
		for _, c := range all {
			names = append(names, c.Object)
		}
	}
	slices.Sort(names)
	return names
}

// messages are those of an agent.
func messages(t *testing.T, m *Mirror) (all []*jetstream.RawStreamMsg) {
	t.Helper()
	for next := uint64(1); ; {
		raw, err := m.s.stream.GetMsg(within(t), next, jetstream.WithGetMsgSubject(m.subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all, next = append(all, raw), raw.Sequence+1
	}
}

// shipWhole ships the files whole until what came before is removed, for which a shipment does not wait long.
func shipWhole(t *testing.T, m *Mirror) {
	t.Helper()
	for {
		m.whole = false
		ship(t, m)
		if len(m.held.needless()) == 0 && begins(t, m) {
			return
		}
	}
}

// begins reports whether all messages of an agent are of its last whole shipment.
func begins(t *testing.T, m *Mirror) bool {
	t.Helper()
	beginnings := 0
	for _, raw := range messages(t, m) {
		if head, _, err := decode(raw.Data); err != nil {
			t.Fatal(err)
		} else if head.Begins {
			beginnings++
		}
	}
	return beginnings == 1
}

// text is of so many bytes, and of no others the same.
func text(seed string, size int) string { return strings.Repeat(seed+" ", size/len(seed)+1)[:size] }

// What is large goes to the object store: once, whoever has the agent, as long as the files have it. What no file has any more is removed, and all with the agent.
func testLargeFiles(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	m := takeLarge(t, machines[0], 1, root)
	session := text("said", 3*maxObject+chunk+17)
	write(t, root, "worker.jsonl", session)
	write(t, root, "worker.images/picture", text("picture", chunk))
	write(t, root, "worker.images/small", text("small", chunk-1))
	write(t, root, "worker.images/old", text("old", 3*chunk))
	ship(t, m)
	if names := objectsOf(t, m.s, t.Name()); len(names) != 7 || !slices.Equal(names, needed(m)) {
		t.Fatalf("there are %d objects, of which the files have %d", len(names), len(needed(m)))
	}
	session += text("a long result", 2*chunk)
	write(t, root, "worker.jsonl", session)
	session += "a word"
	write(t, root, "worker.jsonl", session)
	ship(t, m)
	for _, raw := range messages(t, m) {
		if len(raw.Data) > 2*chunk {
			t.Errorf("a message has %d bytes", len(raw.Data))
		}
	}

	next := takeLarge(t, machines[1], 2, other)
	if err := next.Restore(within(t), nil); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, other), tree(t, root))
	before := objectsOf(t, next.s, t.Name())
	write(t, other, "worker.images/old", "is small now")
	shipWhole(t, next)
	after := objectsOf(t, next.s, t.Name())
	if fresh := slices.DeleteFunc(slices.Clone(after), func(name string) bool { return slices.Contains(before, name) }); len(after) != 6 || len(fresh) != 0 || !slices.Equal(after, needed(next)) {
		t.Errorf("a whole shipment wrote %q, and %d objects are there of which the files have %d; before, %d were", fresh, len(after), len(needed(next)), len(before))
	}
	if size := len(slices.Concat(payloads(messages(t, next))...)); size > 2*chunk {
		t.Errorf("a whole shipment of what the object store has took %d bytes of messages", size)
	}

	// The owner's process starts anew, with the files.
	again := takeLarge(t, machines[1], 2, other)
	shipWhole(t, again)
	if names := objectsOf(t, again.s, t.Name()); !slices.Equal(names, after) {
		t.Errorf("after a restart there are %d objects, and were %d", len(names), len(after))
	}
	third := t.TempDir()
	if err := again.s.Save(within(t), Options{Agent: t.Name(), Root: third, Paths: paths, Scratch: filepath.Join(t.TempDir(), "scratch")}); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, third), tree(t, other))

	// A machine of an earlier version is there: it reads what is shipped from now on.
	again.UseObjects(false)
	shipWhole(t, again)
	shipWhole(t, again)
	if names, all := objectsOf(t, again.s, t.Name()), messages(t, again); len(names) != 0 || slices.ContainsFunc(all, func(raw *jetstream.RawStreamMsg) bool { return !bytes.HasPrefix(raw.Data, []byte(`{"format":1,`)) }) {
		t.Errorf("without objects %d are there, and the first message is %.80s", len(names), all[0].Data)
	}

	again.UseObjects(true)
	shipWhole(t, again)
	gone := takeLarge(t, machines[2], 3, t.TempDir()) // which has read nothing
	if err := gone.Remove(within(t)); err != nil {
		t.Fatal(err)
	}
	if names, all := objectsOf(t, gone.s, t.Name()), messages(t, gone); len(names) != 0 || len(all) != 1 || !bytes.HasPrefix(all[0].Data, []byte(`{"format":1,`)) {
		t.Errorf("of an agent that is no more %d objects are there, and %d messages", len(names), len(all))
	}
}

func payloads(all []*jetstream.RawStreamMsg) (data [][]byte) {
	for _, raw := range all {
		data = append(data, raw.Data)
	}
	return data
}

// Where an object is missing nothing is laid out, and the rest is there when it is there again. What is missing of an earlier state is not needed.
func testMissingObject(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	m := takeLarge(t, machines[0], 1, root)
	write(t, root, "worker.images/picture", text("first", 2*chunk))
	ship(t, m)
	first := needed(m)[0]
	write(t, root, "another", text("second", 3*chunk))
	if err := os.Rename(filepath.Join(root, "another"), filepath.Join(root, "worker.images/picture")); err != nil {
		t.Fatal(err)
	}
	ship(t, m)
	want := tree(t, root)
	if err := m.s.remove(within(t), first); err != nil {
		t.Fatal(err)
	}
	next := takeLarge(t, machines[1], 2, other)
	if err := next.Restore(within(t), nil); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, other), want)
	ship(t, next)
	if err := next.s.remove(within(t), needed(next)[0]); err != nil {
		t.Fatal(err)
	}
	last := takeLarge(t, machines[2], 3, t.TempDir())
	for what, err := range map[string]error{
		"restored": last.Restore(within(t), nil), "saved": last.s.Save(within(t), Options{Agent: t.Name(), Root: last.o.Root, Paths: paths, Scratch: filepath.Join(t.TempDir(), "scratch")}),
	} {
		if !errors.Is(err, errNoObject) || !strings.Contains(err.Error(), "worker.images/picture") {
			t.Errorf("%s without an object: %v", what, err)
		}
	}
	same(t, tree(t, last.o.Root), map[string]string{})
}

// What a killed process leaves in the object store is swept: an object that no message names, and bytes of none.
func testSweep(t *testing.T, machines []*clustertest.Machine) {
	root := t.TempDir()
	m := takeLarge(t, machines[0], 2, root)
	write(t, root, "worker.jsonl", text("said", 2*chunk))
	ship(t, m)
	kept := needed(m)
	var ofLater string
	for epoch := range uint64(3) {
		name, err := m.s.put(within(t), t.Name(), epoch+1, []byte("left behind"), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if epoch == 2 {
			ofLater = name
		}
	}
	if _, err := m.s.put(within(t), t.Name()+" of nobody", 1, []byte("left behind"), func(string) {}); err != nil {
		t.Fatal(err)
	}
	const half = "half"
	if _, err := m.s.js.Publish(within(t), "$O."+m.s.bucket.name+".C."+half, []byte("left behind")); err != nil {
		t.Fatal(err)
	}
	chunks := func() map[string]uint64 {
		info, err := m.s.bucket.stream.Info(within(t), jetstream.WithSubjectFilter("$O."+m.s.bucket.name+".C."+half))
		if err != nil {
			t.Fatal(err)
		}
		return info.State.Subjects
	}
	for round := range 2 {
		if got := len(chunks()); got != 1 {
			t.Errorf("before sweep %d there are %d kinds of bytes", round, got)
		}
		err := m.s.Sweep(within(t), func(agent string, names []string) []string {
			switch agent {
			case t.Name():
				return m.Stray(names)
			case t.Name() + " of nobody":
				return names
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := slices.Sorted(slices.Values(append(kept, ofLater)))
	if names := objectsOf(t, m.s, t.Name()); !slices.Equal(names, want) || len(objectsOf(t, m.s, t.Name()+" of nobody")) != 0 || len(chunks()) != 0 {
		t.Errorf("there are %q, want %q; of nobody %d, and %d kinds of bytes", names, want, len(objectsOf(t, m.s, t.Name()+" of nobody")), len(chunks()))
	}
}

// Where objects cannot be written all goes into the stream, as before.
func testNoObjectStore(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	m := takeLarge(t, machines[0], 1, root)
	m.s.bucket = newBucket("lost", 3, 0)
	if _, _, err := m.s.bucket.open(within(t), m.s.js, long); err != nil {
		t.Fatal(err)
	}
	if err := m.s.js.DeleteStream(within(t), "OBJ_nexus_lost_objects"); err != nil {
		t.Fatal(err)
	}
	write(t, root, "worker.jsonl", text("said", maxObject+chunk))
	ship(t, m)
	if err := m.s.bucket.avoided(); !errors.Is(err, errNoObjects) {
		t.Errorf("it is not avoided: %v", err)
	}
	next := take(t, machines[1], 2, other)
	if err := next.Restore(within(t), nil); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, other), tree(t, root))
}

// A message that names objects is read, and written, as it was recorded.
func TestRecordedObjects(t *testing.T) {
	data := fixtures.Read(t, "cluster/mirror-2.txt")
	m, pieces, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	want := message{Format: 2, Epoch: 7, Number: 4, Writer: "W", Objects: true, Log: extent{"worker.records/1.jsonl", 9}, Changes: []change{
		{Path: "worker.files/picture", Size: 300000, Object: "d29ya2Vy.7.N", SHA256: "00ff"}, {Path: "worker.jsonl", At: 5, Size: 3},
	}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]byte{{}, []byte("one")}, pieces); diff != "" {
		t.Errorf("the pieces (-want +got):\n%s", diff)
	}
	if again, err := m.encode(pieces); err != nil || !bytes.Equal(again, data) {
		t.Errorf("it is written as %q, %v; if that is meant, it is another format", again, err)
	}
	for what, damaged := range map[string]string{"a size": `{"format":2,"changes":[{"path":"p","size":524289,"object":"o"}]}`, "a patch": `{"format":2,"changes":[{"path":"p","size":9,"object":"o","patch":true}]}`} {
		if _, _, err := decode([]byte(damaged + "\n")); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Names of objects say whose they are; others are nobody's.
func TestObjectNames(t *testing.T) {
	name := newObject("worker.1 ü", 7)
	if agent, epoch, ok := ofObject(name); agent != "worker.1 ü" || epoch != 7 || !ok || name == newObject("worker.1 ü", 7) {
		t.Errorf("%q is of %q, %d, %v", name, agent, epoch, ok)
	}
	for _, name := range []string{"", "a", "..", "a.b.c", "YQ.-1.x", "!.1.x", "YQ.1.x.y"} {
		if _, _, ok := ofObject(name); ok {
			t.Errorf("%q is an object's", name)
		}
	}
}

// What messages name is known as the messages change it.
func TestHeld(t *testing.T) {
	object := func(path string, at int64, name string) change {
		return change{Path: path, At: at, Size: 1, Object: name}
	}
	var h held
	for _, m := range []message{
		{Number: 1},
		{Number: 2, Begins: true},
		{Number: 3, Changes: []change{object("a", 0, "a0"), object("a", 1, "a1"), object("b", 0, "b0")}, Complete: true},
		{Number: 4, Changes: []change{{Path: "a", At: 0, Size: 3, Patch: true}, object("a", 2, "a2"), {Path: "b", Gone: true}, object("c", 0, "c0")}},
		{Number: 5, Changes: []change{{Path: "c", Size: 1}}},
		{Number: 6, Begins: true},
		{Number: 7, Changes: []change{object("a", 0, "lost")}}, // the owner died
		{Number: 1},
	} {
		h.take(m)
	}
	if got := h.needless(); !slices.Equal(got, []string{"b0", "c0", "lost"}) || !slices.Equal(slices.Sorted(maps.Keys(h.named)), []string{"a0", "a1", "a2", "b0", "c0", "lost"}) {
		t.Errorf("needless are %q of %q", got, slices.Sorted(maps.Keys(h.named)))
	}
	if c, ok := h.at("a", 1); !ok || c.Object != "a1" {
		t.Errorf("at 1 there is %v, %v", c, ok)
	}
}
