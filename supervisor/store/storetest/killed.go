package storetest

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
)

// Command is a process that plays.
func Command(t *testing.T, play, dir string, life int) *exec.Cmd {
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", playVariable, play, dir, life))
	cmd.Stderr = os.Stderr
	return cmd
}

// Kill plays until some lines are told, and returns them.
func Kill(t *testing.T, play, dir string, life, atMost int) (told []string) {
	t.Helper()
	cmd := Command(t, play, dir, life)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for left := 1 + rand.IntN(atMost); lines.Scan(); {
		told = append(told, lines.Text())
		if left--; left == 0 {
			must(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait() // killed
	if cmd.ProcessState.Exited() {
		t.Fatal("the process ended by itself")
	}
	return told
}

// work works on an agent until it is killed. It tells what a client would have been told.
func work(s store.Store, life string) error {
	r, err := s.Open("a", false)
	if err != nil {
		return err
	}
	r.Past(func(id string, _ [sha256.Size]byte, ended *supervisor.Result) {
		if ended == nil {
			r.End(supervisor.Result{TurnID: id, Outcome: supervisor.Crashed})
		}
	})
	last := r.Last()
	for n := uint64(1); ; n++ {
		id := fmt.Sprint(life, "-", n)
		fmt.Fprintln(os.Stdout, "event", last+n)
		r.Append(event(last + n))
		if err := r.Accept(id, digest(id)); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "accepted", id)
		if err := s.SetAccount("a", &store.Account{Spent: n}); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "spent", n)
		r.End(supervisor.Result{TurnID: id, Outcome: supervisor.Completed})
		fmt.Fprintln(os.Stdout, "ended", id)
	}
}

// A server that is killed in the middle of writes forgets nothing that it told, and gives
// no number twice; of the events of each life the last ones may be missing, and those that
// are too old.
func testKilledAtWork(t *testing.T, open Open) {
	dir := t.TempDir()
	given := map[string]bool{}
	begins := map[uint64]bool{}
	for life := range 10 {
		told := Kill(t, "work", dir, life, 400)
		with(t, open, dir, func(s store.Store) {
			sleeping, err := s.Account("a")
			must(t, err)
			r, err := s.Open("a", false)
			must(t, err)
			defer func() { must(t, r.Close()) }()
			requests := past(t, r)
			spent := ""
			for i, line := range told {
				what, of, _ := strings.Cut(line, " ")
				recent := i >= len(told)-4*200 // four lines each: 256 outcomes are kept
				switch {
				case what == "spent":
					spent = of
				case what == "event" && given[of]:
					t.Errorf("event %s is given twice", of)
				case what == "event":
					given[of] = true
					if i == 0 {
						var n uint64
						_, _ = fmt.Sscan(of, &n)
						begins[n] = true
					}
				case recent && what == "ended" && !slices.Contains(requests, of+" completed "),
					recent && what == "accepted" && !slices.ContainsFunc(requests, func(r string) bool { return r == of || strings.HasPrefix(r, of+" ") }):
					t.Errorf("life %d: %s, and it is lost", life, line)
				}
			}
			a, err := s.Account("a")
			must(t, err)
			same(t, "the account, before it was opened and then", sleeping, a)
			if spent != "" && fmt.Sprint(a.Spent) != spent && fmt.Sprint(a.Spent-1) != spent {
				t.Errorf("%d is spent, %s was told", a.Spent, spent)
			}
			last := uint64(0)
			for _, n := range numbers(t, s, "a") {
				if n <= last || n > r.Last() || last > 0 && n != last+1 && !begins[n] {
					t.Errorf("event %d comes after %d and before %d", n, last, r.Last())
				}
				last = n
			}
			if last == 0 && len(told) > 1 { // a request was recorded after the event
				t.Error("no event is kept")
			}
		})
	}
}

// spend adds to the account of an agent that does not run until it is killed, and tells what is spent.
func spend(s store.Store) error {
	for n := uint64(1); ; n++ {
		if err := s.SetAccount("a", &store.Account{Spent: n}); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, n)
	}
}

// An account is the last one that was told, or the next, and all else is as it was.
func testKilledAsItSpends(t *testing.T, open Open) {
	dir := t.TempDir()
	with(t, open, dir, func(s store.Store) { fill(t, s, "a", "mine") })
	for life := range 5 {
		told := Kill(t, "spend", dir, life, 500)
		with(t, open, dir, func(s store.Store) {
			a, err := s.Account("a")
			must(t, err)
			if last := told[len(told)-1]; fmt.Sprint(a.Spent) != last && fmt.Sprint(a.Spent-1) != last {
				t.Errorf("%d is spent, %s was told", a.Spent, last)
			}
			outcome, err := s.Outcome("a", "ended")
			must(t, err)
			same(t, "an outcome", outcome, supervisor.Completed)
			if life%2 == 0 { // it is not opened in between
				return
			}
			r, err := s.Open("a", false)
			must(t, err)
			same(t, "the requests", past(t, r), []string{"ended completed mine", "open"})
			same(t, "the last number", r.Last(), uint64(1))
			must(t, r.Close())
		})
	}
}

// change gives the records of an agent one name after another until it is killed, and tells
// what it is about to do.
func change(s store.Store) error {
	for {
		for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
			fmt.Fprintln(os.Stdout, "rename", names[0], names[1])
			if err := s.Rename(names[0], names[1]); err != nil {
				return err
			}
		}
		fmt.Fprintln(os.Stdout, "clone a copy")
		if err := s.Clone("a", "copy"); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "delete copy -")
		if err := s.Delete("copy"); err != nil {
			return err
		}
	}
}

// A change within which its process was killed is whole once it is made again.
func testKilledInAChange(t *testing.T, open Open) {
	dir := t.TempDir()
	with(t, open, dir, func(s store.Store) { fill(t, s, "a", "mine") })
	for life := range 20 {
		told := Kill(t, "change", dir, life, 100)
		with(t, open, dir, func(s store.Store) {
			words := strings.Fields(told[len(told)-1])
			what, from, to := words[0], words[1], words[2]
			name := "a"
			switch what {
			case "rename":
				must(t, s.Rename(from, to))
				check(t, s, from, "- - -")
				name = to
			case "clone":
				must(t, s.Clone(from, to))
				check(t, s, to, "- - mine")
			case "delete":
				must(t, s.Delete(from))
				check(t, s, from, "- - -")
			}
			check(t, s, name, "kept kept mine")
			if name == "b" {
				must(t, s.Rename("b", "a"))
			}
		})
	}
}
