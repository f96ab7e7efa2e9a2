package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nexus.internal/supervisor/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Verify(m) }

// TestMirror has three machines that keep the files of one agent after another.
func TestMirror(t *testing.T) {
	machines := clustertest.Start(t, 3)
	for name, test := range map[string]func(*testing.T, []*clustertest.Machine){
		"FilesAreOnAnotherMachine":       testFilesAreOnAnotherMachine,
		"EarlierOwnerIsRefused":          testEarlierOwnerIsRefused,
		"OneOwnerAfterAnother":           testOneOwnerAfterAnother,
		"DeathWhileFilesAreShippedWhole": testDeathWhileFilesAreShippedWhole,
		"LostAnswers":                    testLostAnswers,
		"MinorityShipsNothing":           testMinorityShipsNothing,
		"ReplacedFilesAreForgotten":      testReplacedFilesAreForgotten,
		"WrittenOver":                    testWrittenOver,
		"EmptyDirectories":               testEmptyDirectories,
		"HostileFiles":                   testHostileFiles,
		"LaterFormat":                    testLaterFormat,
		"MissingMessage":                 testMissingMessage,
		"NumberOfAnotherProcess":         testNumberOfAnotherProcess,
		"LargeFiles":                     testLargeFiles,
		"MissingObject":                  testMissingObject,
		"Sweep":                          testSweep,
		"NoObjectStore":                  testNoObjectStore,
	} {
		t.Run(name, func(t *testing.T) { test(t, machines) })
	}
}

// long bounds what machines do on a busy one.
const long = time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	t.Cleanup(cancel)
	return ctx
}

var paths = []string{"worker.jsonl", "worker.records", "worker.images"}

func stream(t *testing.T, m *clustertest.Machine) *Stream {
	t.Helper()
	s, err := Open(within(t), m.JetStream, "farm", 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// take has a machine be the owner of the test's agent.
func take(t *testing.T, m *clustertest.Machine, epoch uint64, root string) *Mirror {
	t.Helper()
	mirror, err := stream(t, m).Take(within(t), Options{
		Agent: t.Name(), Epoch: epoch, Root: root, Paths: paths, Growing: []string{"worker.jsonl"}, Scratch: filepath.Join(t.TempDir(), "scratch"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mirror.Close)
	return mirror
}

func ship(t *testing.T, m *Mirror) {
	t.Helper()
	if err := m.Sync(within(t)); err != nil {
		t.Fatal(err)
	}
}

// tree is what there is below a directory.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path) // it is below
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if text, ok := got[name]; !ok || text != want[name] {
			t.Errorf("%s: there: %v, %d bytes, want %d", name, ok, len(text), len(want[name]))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is there", name)
		}
	}
	t.FailNow()
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// alter does something to a file, by chance: it grows, is cut, cut and grown, replaced, removed, empty, or, unless it only
// grows, has other bytes where others were.
func alter(t *testing.T, r *rand.Rand, root string) {
	t.Helper()
	name := []string{"worker.jsonl", "worker.records/1", "worker.records/2", "worker.images/a/b"}[r.IntN(4)]
	path := filepath.Join(root, name)
	text, _ := os.ReadFile(path) // it may not be there
	more := func() string {
		return strings.Repeat(fmt.Sprint(r.Uint64()), 1+r.IntN(1<<r.IntN(17)))
	}
	switch r.IntN(7) {
	case 6:
		if name == "worker.jsonl" || len(text) == 0 {
			return
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		at := r.IntN(len(text))
		if _, err := f.WriteAt([]byte(more())[:min(15, len(text)-at)], int64(at)); err != nil {
			t.Fatal(err)
		}
	case 0, 1:
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			write(t, root, name, more())
			return
		}
		defer f.Close()
		if _, err := f.WriteString(more()); err != nil {
			t.Fatal(err)
		}
	case 2:
		if len(text) > 0 {
			if err := os.Truncate(path, int64(r.IntN(len(text)))); err != nil {
				t.Fatal(err)
			}
		}
	case 3:
		write(t, root, name, string(text[:len(text)/2])+more()) // in place
	case 4:
		write(t, root, "replacement", more())
		_ = os.MkdirAll(filepath.Dir(path), 0o700) // else the next fails
		if err := os.Rename(filepath.Join(root, "replacement"), path); err != nil {
			t.Fatal(err)
		}
	case 5:
		_ = os.Remove(path) // it may not be there
		if r.IntN(2) == 0 {
			write(t, root, name, "")
		}
	}
}

// Whatever is done to the files, another machine has them as they were at the last Sync, and goes on.
func testFilesAreOnAnotherMachine(t *testing.T, machines []*clustertest.Machine) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	root := t.TempDir()
	for epoch := range uint64(6) {
		write(t, root, "another.records/1", "stays")
		m := take(t, machines[epoch%3], epoch+1, root)
		if epoch > 0 {
			if err := m.Restore(within(t), nil); err != nil {
				t.Fatal(err)
			}
		}
		for range 8 {
			for range r.IntN(4) {
				alter(t, r, root)
			}
			m.UseObjects(r.IntN(4) > 0)
			ship(t, m)
		}
		want := tree(t, root)
		alter(t, r, root) // which nobody hears of
		other := t.TempDir()
		write(t, other, "worker.jsonl", "of another time")
		write(t, other, "another.records/1", "stays")
		next := take(t, machines[(epoch+1)%3], epoch+1, other)
		if err := next.Restore(within(t), nil); err != nil {
			t.Fatal(err)
		}
		same(t, tree(t, other), want)
		root = other
	}
}

// From the moment on when another machine has taken an agent, nothing of the one before is taken: neither what it
// sends nor that it takes it back.
func testEarlierOwnerIsRefused(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	first := take(t, machines[0], 7, root)
	write(t, root, "worker.jsonl", "one\n")
	ship(t, first)
	second := take(t, machines[1], 9, other)
	write(t, root, "worker.jsonl", "one\ntwo\n")
	for range 2 {
		if err := first.Sync(within(t)); !errors.Is(err, ErrFenced) {
			t.Errorf("the earlier owner: %v", err)
		}
	}
	if err := first.Remove(within(t)); !errors.Is(err, ErrFenced) {
		t.Errorf("the earlier owner removes it: %v", err)
	}
	if _, err := stream(t, machines[2]).Take(within(t), Options{Agent: t.Name(), Epoch: 8, Root: root}); !errors.Is(err, ErrFenced) {
		t.Errorf("the earlier owner takes it back: %v", err)
	}
	if err := second.Restore(within(t), nil); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, other), map[string]string{"worker.jsonl": "one\n"})
	// What is removed is no more, and the earlier owner stays refused.
	if err := second.Remove(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := first.Sync(within(t)); !errors.Is(err, ErrFenced) {
		t.Errorf("the earlier owner, of an agent that is no more: %v", err)
	}
	third := take(t, machines[2], 10, other)
	if err := third.Restore(within(t), nil); !errors.Is(err, ErrNothing) {
		t.Errorf("an agent that is no more: %v", err)
	}
	same(t, tree(t, other), map[string]string{"worker.jsonl": "one\n"})
}

// Where an earlier owner's message stands behind a later one's, nothing is laid out, and nothing is saved: two machines wrote.
func testOneOwnerAfterAnother(t *testing.T, machines []*clustertest.Machine) {
	root := t.TempDir()
	m := take(t, machines[0], 7, root)
	write(t, root, "worker.jsonl", "one\n")
	ship(t, m)
	m.o.Epoch = 6
	write(t, root, "worker.jsonl", "one\ntwo\n")
	ship(t, m)
	want := "the epoch 6 stands behind one of 7"
	if err := take(t, machines[1], 8, t.TempDir()).Restore(within(t), nil); !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), want) {
		t.Errorf("it is laid out: %v", err)
	}
	err := stream(t, machines[2]).Save(within(t), Options{Agent: t.Name(), Root: t.TempDir(), Paths: paths, Scratch: filepath.Join(t.TempDir(), "scratch")})
	if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), want) {
		t.Errorf("it is saved: %v", err)
	}
}

// What is written over in a file that grows is shipped at once where it stands in its first block or its last one, else once that is said.
func testWrittenOver(t *testing.T, machines []*clustertest.Machine) {
	root := t.TempDir()
	write(t, root, "worker.records/1", strings.Repeat("0123456789abcde\n", 4<<10)) // four blocks
	first, err := stream(t, machines[0]).Take(within(t), Options{
		Agent: t.Name(), Epoch: 1, Root: root, Paths: paths, Growing: []string{"worker.records"}, Scratch: filepath.Join(t.TempDir(), "scratch"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Close)
	ship(t, first)
	over := func(at int64) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(root, "worker.records", "1"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte("WRITTEN OVER"), at); err != nil {
			t.Fatal(err)
		}
	}
	saved := func() map[string]string {
		t.Helper()
		dir := t.TempDir()
		if err := stream(t, machines[1]).Save(within(t), Options{Agent: t.Name(), Root: dir, Paths: paths, Scratch: filepath.Join(t.TempDir(), "scratch")}); err != nil {
			t.Fatal(err)
		}
		return tree(t, dir)
	}
	for _, at := range []int64{0, 60 << 10} {
		over(at)
		ship(t, first)
		same(t, saved(), tree(t, root))
	}
	before := saved()
	over(20 << 10)
	ship(t, first)
	same(t, saved(), before)
	first.Compare()
	ship(t, first)
	same(t, saved(), tree(t, root))
}

// A directory whose last file is gone is gone, too: records without a segment would be damaged ones.
func testEmptyDirectories(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	first := take(t, machines[0], 1, root)
	for _, name := range []string{"worker.jsonl", "worker.records/1", "worker.images/a/b", "worker.images/a/c"} {
		write(t, root, name, "text")
	}
	ship(t, first)
	if err := errors.Join(os.RemoveAll(filepath.Join(root, "worker.records")), os.Remove(filepath.Join(root, "worker.images", "a", "b"))); err != nil {
		t.Fatal(err)
	}
	ship(t, first)
	if err := take(t, machines[1], 2, other).Restore(within(t), nil); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, other), map[string]string{"worker.jsonl": "text", "worker.images/a/c": "text"})
	if _, err := os.Lstat(filepath.Join(other, "worker.records")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of the directory without files there is something: %v", err)
	}
}

// An owner that dies while it ships the files whole leaves those that were there before.
func testDeathWhileFilesAreShippedWhole(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	first := take(t, machines[0], 1, root)
	write(t, root, "worker.jsonl", "one\n")
	ship(t, first)
	piece := []byte("half of it")
	for _, m := range []message{{Begins: true}, {Changes: []change{{Path: "worker.jsonl", Size: len(piece)}}}} {
		if err := first.publish(within(t), m, piece[:len(piece)*len(m.Changes)]); err != nil {
			t.Fatal(err)
		}
	}
	second := take(t, machines[1], 2, other)
	if err := second.Restore(within(t), nil); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, other), map[string]string{"worker.jsonl": "one\n"})
}

// An answer that is lost is no refusal, and a message that comes late none of another owner.
func testLostAnswers(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	m := take(t, machines[0], 1, root)
	write(t, root, "worker.jsonl", "one\n")
	ship(t, m)
	m.last-- // as if the answer to the last message were lost: it is sent again
	m.number--
	if err := m.publish(within(t), message{}); err != nil {
		t.Errorf("the answer was lost: %v", err)
	}
	m.last-- // as if that had come after its sender had given up
	m.whole = false
	write(t, root, "worker.jsonl", "two\n")
	ship(t, m)
	second := take(t, machines[1], 2, other)
	if err := second.Restore(within(t), nil); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, other), map[string]string{"worker.jsonl": "two\n"})
}

// Without a majority nothing is acknowledged; with one, what was not is shipped.
func testMinorityShipsNothing(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	m := take(t, machines[0], 1, root)
	write(t, root, "worker.jsonl", "one\n")
	ship(t, m)
	machines[1].Stop()
	machines[2].Stop()
	write(t, root, "worker.jsonl", "one\ntwo\n")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := m.Sync(ctx); err == nil {
		t.Error("one of three machines is a majority")
	}
	machines[1].Start()
	ship(t, m)
	machines[2].Start()
	second := take(t, machines[2], 2, other)
	if err := second.Restore(within(t), nil); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, other), map[string]string{"worker.jsonl": "one\ntwo\n"})
}

// What was replaced again and again takes no more room than a few times what there is.
func testReplacedFilesAreForgotten(t *testing.T, machines []*clustertest.Machine) {
	root := t.TempDir()
	m := take(t, machines[0], 1, root)
	for i := range 40 {
		write(t, root, "worker.jsonl", strings.Repeat(fmt.Sprintln(i), 50_000))
		ship(t, m)
	}
	if size, most := len(slices.Concat(payloads(messages(t, m))...)), growth*150_000+2*slack; size > most {
		t.Errorf("the stream has %d bytes, want %d at most", size, most)
	}
}

// Links and pipes are not followed, and neither is a path that leads out; what is too large is refused.
func testHostileFiles(t *testing.T, machines []*clustertest.Machine) {
	root, other := t.TempDir(), t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, root, "worker.records/1", "one")
	if err := errors.Join(os.Symlink(secret, filepath.Join(root, "worker.jsonl")), os.Symlink(filepath.Dir(secret), filepath.Join(root, "worker.images")),
		syscall.Mkfifo(filepath.Join(root, "worker.records", "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	m := take(t, machines[0], 1, root)
	ship(t, m)
	second := take(t, machines[1], 2, other)
	if err := second.Restore(within(t), nil); err != nil {
		t.Fatal(err)
	}
	same(t, tree(t, other), map[string]string{"worker.records/1": "one"})
	for _, path := range []string{"/etc/passwd", "../x", ".", ""} {
		if _, err := stream(t, machines[0]).Take(within(t), Options{Agent: t.Name(), Epoch: 3, Root: root, Paths: []string{path}}); err == nil {
			t.Errorf("the path %q is taken", path)
		}
	}
	if epoch, about, err := stream(t, machines[2]).Last(within(t), t.Name()); err != nil || epoch != 2 || about != nil {
		t.Errorf("the last message is of epoch %d, about %s, %v", epoch, about, err)
	}
	if err := second.publish(within(t), message{Begins: true, Changes: []change{{Path: "../escaped"}}}); err != nil {
		t.Fatal(err)
	}
	third := take(t, machines[2], 3, other)
	if err := third.Restore(within(t), nil); err == nil || !strings.Contains(err.Error(), `"../escaped" is none of the agent's`) {
		t.Errorf("a path that leads out: %v", err)
	}
	third.o.MaxBytes = 2
	if err := third.Sync(within(t)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("3 bytes of 2: %v", err)
	}
}

// A message that is damaged, or of a later version, is an error, and none is read beyond its end.
func FuzzDecode(f *testing.F) {
	good, err := message{Epoch: 1, Number: 2, Changes: []change{{Path: "a", Size: 2}, {Path: "b", Gone: true}, {Path: "c", At: 5, Size: 1}}}.encode([][]byte{[]byte("xy"), nil, []byte("z")})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range [][]byte{good, good[:len(good)-1], []byte("{}\n"), []byte(`{"format":2}` + "\n"), []byte(`{"format":1,"changes":[{"path":"a","size":-1}]}` + "\n"), nil} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, pieces, err := decode(data)
		if err != nil {
			return
		}
		if len(pieces) != len(m.Changes) {
			t.Fatalf("%d pieces of %d changes", len(pieces), len(m.Changes))
		}
		again, err := m.encode(pieces)
		if err != nil {
			t.Fatal(err)
		}
		_, back, err := decode(again)
		if err != nil || !slices.EqualFunc(pieces, back, bytes.Equal) {
			t.Errorf("%q, encoded again: %v", data, err)
		}
	})
}
