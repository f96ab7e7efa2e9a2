//go:build unix

package requests_test

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/requests"
)

// perform is what a process of the tests does: one life of a server.
func perform(play string) int {
	dir := os.Getenv("REQUESTS_DIR")
	var err error
	switch play {
	case "serve":
		err = serve(dir)
	case "limit":
		err = limited(dir)
	default:
		err = errors.New("no such play")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func command(t *testing.T, play, dir string, env ...string) *exec.Cmd {
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), append(env, "REQUESTS_PLAY="+play, "REQUESTS_DIR="+dir)...)
	cmd.Stderr = os.Stderr
	return cmd
}

func paths(dir string) (log, session string) {
	return filepath.Join(dir, "alice.outcomes"), filepath.Join(dir, "alice.jsonl")
}

// serve accepts and ends requests, three at a time, until it is killed. It tells
// on stdout what a client would have been told, once it may be.
func serve(dir string) error {
	path, session := paths(dir)
	l, err := requests.Open(path, requests.Options{Session: session})
	if err != nil {
		return err
	}
	l.Past(func(id string, _ [32]byte, ended *supervisor.Result) {
		if ended == nil {
			l.End(supervisor.Result{TurnID: id, Outcome: supervisor.Crashed, Err: errors.New("cut off")})
		}
	})
	saved, err := os.OpenFile(session, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
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
	id := func(n int) string { return fmt.Sprintf("%s-%d", os.Getenv("REQUESTS_LIFE"), n) }
	for n := 0; ; n++ {
		if err := l.Accept(id(n), sum(id(n))); err != nil {
			return err
		}
		fmt.Println("accepted", id(n))
		done := n - 3
		if done < 0 {
			continue
		}
		// The agent answers, which it has saved before, and then we do.
		if err := save(said(protocol.RoleUser, id(done), "go"), said(protocol.RoleAssistant, id(done), "done"), ending(id(done), "completed", "")); err != nil {
			return err
		}
		fmt.Println("saved", id(done))
		l.End(completed(id(done), strings.Repeat("x", n%3000)))
		fmt.Println("ended", id(done))
	}
}

// A server is killed 200 times (40 under -short), wherever it is. Whatever it had told a client is
// found afterwards, each request has one outcome, and one that the agent saved
// is never called crashed.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	path, session := paths(dir)
	crashed, rescued := 0, 0
	lives := 200
	if testing.Short() {
		lives = 15
	}
	for life := range lives {
		cmd := command(t, "serve", dir, fmt.Sprintf("REQUESTS_LIFE=%d", life))
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		told := map[string]string{} // the last thing a client was told of it
		var order []string
		lines := bufio.NewScanner(out)
		for want := 1 + rand.IntN(1+rand.IntN(2000)); lines.Scan(); {
			what, id, _ := strings.Cut(lines.Text(), " ")
			if told[id] == "" {
				order = append(order, id)
			}
			told[id] = what
			if want--; want == 0 {
				must(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait() // killed

		l := open(t, path, requests.Options{Session: session})
		got := map[string]*supervisor.Result{}
		var open []string
		for _, r := range past(l) {
			if _, twice := got[r.id]; twice {
				t.Fatalf("%s has two outcomes", r.id)
			}
			got[r.id] = r.ended
			if r.ended == nil {
				open = append(open, r.id)
			}
		}
		found, err := l.Find(open...)
		must(t, err)
		for _, id := range order[max(0, len(order)-requests.MaxOutcomes):] {
			ended, ok := got[id]
			_, saved := found[id]
			if !ok && told[id] != "" && order[len(order)-1] != id {
				t.Fatalf("life %d: %s, which was %s, is not found", life, id, told[id])
			}
			if told[id] == "ended" && (ended == nil || ended.Outcome != supervisor.Completed) {
				t.Fatalf("life %d: the answer to %s is lost", life, id)
			}
			if ended == nil && told[id] == "saved" {
				rescued++
				if !saved {
					t.Fatalf("life %d: %s was saved and is not found", life, id)
				}
			}
			if ended == nil && !saved {
				crashed++
			}
		}
		must(t, l.Close())
	}
	t.Logf("%d were crashed, %d rescued", crashed, rescued)
	if crashed == 0 {
		t.Errorf("nothing was cut off in %d lives", lives)
	}
}

// The disk takes no more: a request is refused rather than forgotten, and the
// outcome of one that runs is in the file at once, if without its text.
func TestNoRoom(t *testing.T) {
	must(t, command(t, "limit", t.TempDir()).Run())
}

func limited(dir string) error {
	signal.Ignore(syscall.SIGXFSZ) // so that the write fails instead
	path, _ := paths(dir)
	l, err := requests.Open(path, requests.Options{})
	if err != nil {
		return err
	}
	room := func(bytes uint64) error {
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			return err
		}
		limit.Cur = bytes
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
	}
	for _, id := range []string{"a", "b"} {
		if err := l.Accept(id, sum(id)); err != nil {
			return err
		}
	}
	for i := range requests.MaxOutcomes { // so that the file is written anew
		id := fmt.Sprint(i)
		if err := l.Accept(id, sum(id)); err != nil {
			return err
		}
		l.End(completed(id, ""))
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := room(uint64(info.Size()) + 20); err != nil { // in the middle of a line
		return err
	}
	if err := l.Accept("c", sum("c")); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("without room Accept = %w", err)
	}
	l.End(completed("a", strings.Repeat("yes", 1000)))
	crash := &supervisor.CrashError{Incarnation: 1, Cause: strings.Repeat("c", 5000), Exit: &supervisor.Exit{Code: 3, Stderr: strings.Repeat("e", 4096)}}
	l.End(supervisor.Result{TurnID: "b", Outcome: supervisor.Crashed, Err: crash})
	if now, err := os.Stat(path); err != nil || now.Size() != info.Size() {
		return fmt.Errorf("what failed is in the file: %d bytes, had %d, %w", now.Size(), info.Size(), err)
	}
	if err := room(1 << 30); err != nil {
		return err
	}
	killed, err := os.ReadFile(path) // what it is now, the next server would find
	if err != nil {
		return err
	}
	if err := l.Accept("d", sum("d")); err != nil {
		return err
	}
	l.End(completed("d", "yes"))
	if err := l.Close(); err != nil {
		return err
	}
	copied := path + ".copy"
	if err := os.WriteFile(copied, killed, 0o600); err != nil {
		return err
	}
	for _, path := range []string{path, copied} {
		if l, err = requests.Open(path, requests.Options{}); err != nil {
			return err
		}
		found := map[string]*supervisor.Result{}
		l.Past(func(id string, _ [sha256.Size]byte, ended *supervisor.Result) { found[id] = ended })
		if a := found["a"]; a == nil || a.Text != "" || !a.Truncated {
			return fmt.Errorf("of the answer %+v is left", a)
		}
		if found["b"] == nil {
			return errors.New("the crash is forgotten")
		}
		told, ok := errors.AsType[*supervisor.CrashError](found["b"].Err)
		if !ok || told.Exit.Code != 3 || told.Exit.Stderr != "" || told.Cause == "" || !strings.HasPrefix(crash.Cause, told.Cause) {
			return fmt.Errorf("of the crash %+v is left", told)
		}
		if d := found["d"]; path != copied && (d == nil || d.Text != "yes") {
			return fmt.Errorf("after that, found %+v", d)
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}
