//go:build unix

package store_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
	"nexus.internal/supervisor/store/storetest"
)

// plays are what processes of the tests do.
var plays = map[string]func(dir, life string) error{"serve": serve, "limit": limited, "migrate": migrateOnAndOn}

// serve accepts and ends requests, three at a time, until it is killed. It tells
// on stdout what a client would have been told, once it may be.
func serve(dir, life string) error {
	s := small(dir)
	r, err := s.Open("a", false)
	if err != nil {
		return err
	}
	r.Past(func(id string, _ [32]byte, ended *supervisor.Result) {
		if ended == nil {
			r.End(supervisor.Result{TurnID: id, Outcome: supervisor.Crashed, Err: errors.New("cut off")})
		}
	})
	saved, err := os.OpenFile(filepath.Join(dir, "a.jsonl"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	save := func(records ...transcript.Record) error {
		var data []byte
		for _, r := range records {
			line, err := transcript.Append(data, r)
			if err != nil {
				return err
			}
			data = append(line, '\n')
		}
		_, err := saved.Write(data)
		return err
	}
	id := func(n int) string { return fmt.Sprintf("%s-%d", life, n) }
	first := r.Last() + 1
	for n := 0; ; n++ {
		if err := r.Accept(id(n), sum(id(n))); err != nil {
			return err
		}
		fmt.Println("accepted", id(n))
		r.Append(note(first+uint64(n), n%300))
		done := n - 3
		if done < 0 {
			continue
		}
		// The agent answers, which it has saved before, and then we do.
		if err := save(said(protocol.RoleUser, id(done), "go"), said(protocol.RoleAssistant, id(done), "done"), ending(id(done), "completed", "")); err != nil {
			return err
		}
		fmt.Println("saved", id(done))
		r.End(completed(id(done), strings.Repeat("x", n%300)))
		fmt.Println("ended", id(done))
	}
}

// A server is killed again and again, wherever it is. Whatever it had told a client is
// found afterwards, each request has one outcome, and one that the agent saved
// is never called crashed.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	crashed, rescued := 0, 0
	lives := 100
	if testing.Short() {
		lives = 10
	}
	for life := range lives {
		last := map[string]string{} // the last thing a client was told of it
		var order []string
		for _, line := range storetest.Kill(t, "serve", dir, life, 2000) {
			what, id, _ := strings.Cut(line, " ")
			if last[id] == "" {
				order = append(order, id)
			}
			last[id] = what
		}
		s := small(dir)
		r, err := s.Open("a", false)
		must(t, err)
		got := map[string]*supervisor.Result{}
		var open []string
		for _, p := range past(r) {
			if _, twice := got[p.id]; twice {
				t.Fatalf("%s has two outcomes", p.id)
			}
			got[p.id] = p.ended
			if p.ended == nil {
				open = append(open, p.id)
			}
		}
		found, err := r.Find(open...)
		must(t, err)
		for _, id := range order[max(0, len(order)-256):] {
			ended, ok := got[id]
			_, saved := found[id]
			switch {
			case !ok:
				t.Fatalf("life %d: %s, which was %s, is not found", life, id, last[id])
			case last[id] == "ended" && (ended == nil || ended.Outcome != supervisor.Completed):
				t.Fatalf("life %d: the answer to %s is lost", life, id)
			case ended == nil && last[id] == "saved" && !saved:
				t.Fatalf("life %d: %s was saved and is not found", life, id)
			case ended == nil && last[id] == "saved":
				rescued++
			case ended == nil && !saved:
				crashed++
			}
		}
		must(t, r.Close())
		s.Close()
	}
	t.Logf("%d were crashed, %d rescued", crashed, rescued)
	if crashed == 0 {
		t.Errorf("nothing was cut off in %d lives", lives)
	}
}

// The disk takes no more, in the middle of a line: a request is refused rather than forgotten, the
// outcome of one that runs is in the file at once, if without its text, events leave a hole, and
// the log notes its number all the same. It goes on when there is room.
func TestNoRoom(t *testing.T) {
	must(t, storetest.Command(t, "limit", filepath.Join(t.TempDir(), "dir"), 0).Run())
}

// room bounds the size of files.
func room(bytes int64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = uint64(bytes)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

func limited(dir, _ string) error {
	signal.Ignore(syscall.SIGXFSZ) // so that a write fails instead
	s := small(dir)
	defer s.Close()
	r, err := s.Open("a", false)
	if err != nil {
		return err
	}
	n := uint64(0)
	turn := func(id, text string) error {
		if err := r.Accept(id, sum(id)); err != nil {
			return err
		}
		n++
		r.Append(note(n, 100))
		r.End(completed(id, text))
		return nil
	}
	if err := tight(s); err != nil {
		return err
	}
	open := []string{"\x01\x02\x03" + strings.Repeat("a", 100), "b", "c"}
	for _, id := range open {
		if err := r.Accept(id, sum(id)); err != nil {
			return err
		}
	}
	for i := range 300 { // segments are begun, and rooms used again
		if err := turn(strconv.Itoa(i), ""); err != nil {
			return err
		}
	}
	if err := s.SetAccount("a", &store.Account{Spent: 7}); err != nil {
		return err
	}
	r.Append(note(n+1, 64<<10)) // the next segment is begun by this event, and full
	r.Append(note(n+2, 10))
	n += 2
	for events := uint64(0); events != n; {
		for e, err := range s.Events("a", n-1) {
			if err != nil {
				return err
			}
			events = e.Seq
		}
	}
	path, err := filepath.Glob(filepath.Join(dir, "a.records", "*.jsonl"))
	if err != nil {
		return err
	}
	end := path[len(path)-1]
	info, err := os.Stat(end)
	if err != nil {
		return err
	}
	if err := room(info.Size() + 20); err != nil { // in the middle of a line
		return err
	}
	if err := r.Accept("refused", sum("refused")); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("without room Accept = %w", err)
	}
	if err := s.SetAccount("a", &store.Account{Spent: 8}); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("without room SetAccount = %w", err)
	}
	for range 100 {
		n++
		r.Append(note(n, 100))
	}
	over := r.Overwritten()
	r.End(completed(open[0], strings.Repeat("yes", 1000)))
	if r.Overwritten() == over {
		return errors.New("it is not said that the outcome stands where something stood before")
	}
	crash := &supervisor.CrashError{Incarnation: 1, Cause: strings.Repeat("\x01", 5000), Exit: &supervisor.Exit{Code: 3, Stderr: strings.Repeat("e", 4096)}}
	r.End(supervisor.Result{TurnID: open[1], Outcome: supervisor.Crashed, Err: crash})
	if now, err := os.Stat(end); err != nil || now.Size() != info.Size() {
		return fmt.Errorf("what failed is in the file: %d bytes, had %d, %w", now.Size(), info.Size(), err)
	}
	if err := room(1 << 30); err != nil {
		return err
	}
	copied := dir + "-killed"
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil { // what it is now, the next server would find
		return err
	}
	if err := turn("later", "yes"); err != nil {
		return err
	}
	if err := r.Close(); err != nil {
		return err
	}
	return errors.Join(checkLimited(dir, open, n), checkLimited(copied, open, 0))
}

// tight has little room for the agent b: an outcome is written without the events before it, or in
// the room that the request left.
func tight(s store.Store) error {
	r, err := s.Open("b", false)
	if err != nil {
		return err
	}
	for _, id := range []string{"whole", "short"} {
		if err := r.Accept(id, sum(id)); err != nil {
			return err
		}
	}
	if err := room(192 + 2*1024 + 800); err != nil { // two requests with their rooms, and an outcome
		return err
	}
	r.Append(note(1, 2000))
	r.End(completed("whole", "yes"))
	r.End(completed("short", strings.Repeat("yes", 200)))
	if outcome, err := s.Outcome("b", "short"); outcome != supervisor.Completed { // as after a kill
		return fmt.Errorf("with little room an outcome is %q, %w", outcome, err)
	}
	if err := errors.Join(room(1<<30), r.Close()); err != nil {
		return err
	}
	r, err = s.Open("b", false)
	if err != nil {
		return err
	}
	defer r.Close()
	var texts []string
	for _, p := range past(r) {
		texts = append(texts, p.id+" "+p.ended.Text)
	}
	if fmt.Sprint(texts) != "[whole yes short ]" {
		return fmt.Errorf("with little room there is %q", texts)
	}
	return nil
}

// checkLimited checks what is left of a log whose disk was full, and which ends with that
// number; 0 if its server was killed.
func checkLimited(dir string, open []string, last uint64) error {
	s := small(dir)
	defer s.Close()
	r, err := s.Open("a", false)
	if err != nil {
		return err
	}
	defer r.Close()
	found := map[string]*supervisor.Result{}
	r.Past(func(id string, _ [sha256.Size]byte, ended *supervisor.Result) { found[id] = ended })
	if a := found[open[0]]; a == nil || a.Text != "" || !a.Truncated {
		return fmt.Errorf("of the answer %+v is left", a)
	}
	b := found[open[1]]
	if b == nil {
		return errors.New("the crash is forgotten")
	}
	crash, ok := errors.AsType[*supervisor.CrashError](b.Err)
	if !ok || crash.Exit.Code != 3 || crash.Exit.Stderr != "" || strings.Trim(crash.Cause, "\x01") != "" {
		return fmt.Errorf("of the crash %+v is left", crash)
	}
	if c, ok := found[open[2]]; !ok || c != nil {
		return fmt.Errorf("what waits is %+v, %v", c, ok)
	}
	if _, ok := found["refused"]; ok || found["299"] == nil {
		return errors.New("what was refused is there, or what was before it is not")
	}
	if d := found["later"]; last > 0 && (d == nil || d.Text != "yes" || r.Last() != last) {
		return fmt.Errorf("after that, found %+v, and it goes on after %d, want %d", d, r.Last(), last)
	}
	if a, err := s.Account("a"); err != nil || a.Spent != 7 {
		return fmt.Errorf("the account is %+v, %w", a, err)
	}
	return nil
}
