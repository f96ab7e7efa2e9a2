//go:build unix

package eventlog_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/eventlog"
)

// small makes segments turn over within a few hundred events.
var small = eventlog.Options{Segments: 3, SegmentSize: 20 << 10}

// perform is what a process of the tests does: one life of a server.
func perform(play string) int {
	dir := os.Getenv("EVENTLOG_DIR")
	var err error
	switch play {
	case "flood":
		err = flood(dir)
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

// flood hands out numbers until it is killed: each is told on stdout first.
func flood(dir string) error {
	w := eventlog.New(small)
	l, err := w.Open(dir)
	if err != nil {
		return err
	}
	for n := l.Last() + 1; ; n++ {
		if _, err := fmt.Println(n); err != nil {
			return err
		}
		data := fmt.Sprintf(`{"type":"note","n":%d,"life":%s,"fill":"%s"}`, n, os.Getenv("EVENTLOG_LIFE"), strings.Repeat("x", int(n%300)))
		l.Append(supervisor.Event{Seq: n, Type: "note", Data: []byte(data)})
	}
}

// command re-executes the test binary.
func command(t *testing.T, play, dir string, env ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), append(env, "EVENTLOG_PLAY="+play, "EVENTLOG_DIR="+dir)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// A server is killed 200 times, wherever it is: no number is given twice, and of
// each life the log has the beginning without a hole, until the oldest go.
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "alice.events")
	lifeOf := map[uint64]int{}
	numbers := map[int][]uint64{}
	kept, lives := 0, 200
	if testing.Short() {
		lives = 50
	}
	for life := range lives {
		cmd := command(t, "flood", dir, fmt.Sprintf("EVENTLOG_LIFE=%d", life))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for want := 1 + rand.IntN(1+rand.IntN(2000)); lines.Scan(); {
			n, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				break // cut in the middle
			}
			if before, ok := lifeOf[n]; ok {
				t.Fatalf("life %d gives number %d again, which was life %d's", life, n, before)
			}
			lifeOf[n] = life
			numbers[life] = append(numbers[life], n)
			if want--; want == 0 {
				must(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait() // killed
		if len(numbers[life]) == 0 {
			t.Fatalf("life %d gave no number", life)
		}
		kept += checkLives(t, dir, lifeOf, numbers)
	}
	if kept < lives*100 {
		t.Errorf("only %d events were found in %d lives", kept, lives)
	}
}

func checkLives(t *testing.T, dir string, lifeOf map[uint64]int, numbers map[int][]uint64) int {
	t.Helper()
	w := eventlog.New(small)
	defer w.Close()
	l := open(t, w, dir)
	defer func() { must(t, l.Close()) }()
	got := read(t, l, 0)
	for i, n := range got {
		life, ok := lifeOf[n]
		if !ok {
			t.Fatalf("number %d was never given", n)
		}
		if i == 0 || n == got[i-1]+1 {
			continue
		}
		if n != numbers[life][0] {
			t.Fatalf("in life %d number %d follows %d", life, n, got[i-1])
		}
	}
	return len(got)
}

// The disk takes no more, in the middle of a line: the log has a hole, notes
// its number all the same, and goes on when there is room.
func TestNoRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "alice.events")
	if err := command(t, "limit", dir).Run(); err != nil {
		t.Fatal(err)
	}
}

func limited(dir string) error {
	signal.Ignore(syscall.SIGXFSZ) // so that the write fails instead
	core, logs := observer.New(zap.WarnLevel)
	w := eventlog.New(eventlog.Options{Queue: 32 << 10, Log: zap.New(core)})
	defer w.Close()
	l, err := w.Open(dir)
	if err != nil {
		return err
	}
	room := func(bytes uint64) error {
		limit := syscall.Rlimit{Max: 1 << 40}
		_ = syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
		limit.Cur = bytes
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
	}
	if err := room(1000); err != nil {
		return err
	}
	for n := range uint64(100) {
		l.Append(event(n+1, 100))
		for n < 3 && l.Held() > 0 { // written one by one at first
			runtime.Gosched()
		}
	}
	for logs.Len() == 0 {
		runtime.Gosched()
	}
	info, err := os.Stat(filepath.Join(dir, fmt.Sprintf("%020d.jsonl", 1)))
	if err != nil || info.Size() > 1000 {
		return fmt.Errorf("the limit did not bind: %v", err)
	}
	if err := room(1 << 30); err != nil {
		return err
	}
	l.Append(event(101, 100))
	if err := l.Close(); err != nil {
		return err
	}
	l, err = w.Open(dir)
	if err != nil {
		return err
	}
	if l.Last() != 101 {
		return fmt.Errorf("goes on after %d", l.Last())
	}
	var got []uint64
	for e, err := range l.Read(0) {
		if err != nil {
			return err
		}
		got = append(got, e.Seq)
	}
	holes := 0
	for i := range got[1:] {
		if got[i+1] != got[i]+1 {
			holes++
		}
	}
	if got[0] != 1 || got[len(got)-1] != 101 || holes != 1 || len(got) > 60 {
		return fmt.Errorf("found %v", got)
	}
	return l.Close()
}
