package sessions_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/transcript"
)

// A list looks at the files that were changed, however many there are.
func TestListLooksAtWhatChanged(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	const many = 500
	for i := range many {
		save(t, c, fmt.Sprint("s", i), 1, transcript.Settings{})
	}
	list := func() {
		t.Helper()
		if _, total, err := c.List(0, 10, false); err != nil || total != many {
			t.Fatalf("%d sessions, %v", total, err)
		}
	}
	list()
	first := c.Looked()
	list()
	save(t, c, "s7", 2, transcript.Settings{})
	write(t, filepath.Join(c.Dir("s7"), "s8.records"), "x")
	list()
	if again := c.Looked() - first; first != many || again != 1 {
		t.Errorf("looked at %d files, then at %d, want %d and 1", first, again, many)
	}
}

// A page takes no more memory of many sessions, though one was written to: others would wait for its collection.
func TestListOfManyAllocatesLittle(t *testing.T) {
	c := sessions.New(t.TempDir(), nil)
	const many, rounds = 2000, 20
	for i := range many {
		save(t, c, fmt.Sprint("s", i), 1, transcript.Settings{})
	}
	list := func() {
		save(t, c, "s7", 2, transcript.Settings{})
		if page, total, err := c.List(many/2, 10, false); err != nil || total != many || len(page) != 10 {
			t.Fatalf("%d of %d sessions, %v", len(page), total, err)
		}
	}
	list()
	list() // its page is known now
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		list()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > 24<<10 { // a pointer to each is 16 KiB
		t.Errorf("a page takes %d bytes", each)
	}
	if known, fit := sessions.Remembered(); known != fit {
		t.Errorf("%d summaries are kept after more than fit, want %d", known, fit)
	}
}

// What could not be looked at for a moment is looked at again, though nothing was written to it since.
func TestListAfterAFailedLook(t *testing.T) {
	home := t.TempDir()
	if err := os.Chmod(filepath.Dir(home), 0o711); err != nil { // for anybody, as far as the sessions
		t.Fatal(err)
	}
	c := sessions.New(home, nil)
	save(t, c, "named", 1, transcript.Settings{})
	const id = "00000000-0000-4000-8000-000000000000"
	write(t, c.Path(id), fmt.Sprintf("{\"type\":\"session\",\"version\":1,\"session_id\":%q,\"created_at\":\"2026-01-02T03:04:05Z\"}\n", id))
	sameList(t, c, home, "nothing")
	var files []*os.File
	for _, name := range []string{"named", id} {
		f, err := os.OpenFile(c.Path(name), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	dir := c.Dir("named")
	for name, refuse := range map[string]func(){
		"no descriptors": func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}) },
		"no permission": func() {
			_ = os.Chmod(dir, 0)
			_ = unix.Setfsuid(65534) // of this thread
		},
	} {
		func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for _, f := range files {
				if _, err := f.WriteString("{\"type\":\"note\",\"key\":\"k\",\"at\":\"2026-01-02T03:04:05Z\"}\n"); err != nil {
					t.Error(err)
				}
			}
			refuse()
			page, total, err := c.List(0, 10, true)
			_ = unix.Setfsuid(os.Getuid())
			if err := errors.Join(os.Chmod(dir, 0o700), unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)); err != nil {
				t.Fatal(err)
			}
			if err != nil || total != 2 || len(page) != 2 || !errors.Is(page[0].Damaged, sessions.ErrUnreadable) {
				t.Errorf("%s: %+v, %d, %v", name, page, total, err)
			}
		}()
		sameList(t, c, home, name)
	}
}
