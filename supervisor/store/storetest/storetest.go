// Package storetest has the tests that every [store.Store] must pass.
//
//	func TestMain(m *testing.M) { storetest.Main(m, open, nil) }
//	func TestStore(t *testing.T) { storetest.Run(t, open) }
//
// Some of the tests kill processes, which are the test's program again: Main plays
// these. See SPEC §5.3, §5.6 and §5.7.
package storetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
)

// Open opens the store of a directory. An earlier one of that directory is closed, or its
// process was killed.
type Open func(dir string) store.Store

// playVariable says what a process of the tests does, "PLAY DIR LIFE".
const playVariable = "STORETEST_PLAY"

// Main runs the tests, or what a test has another process do: until it is killed, or else one of
// the store's own plays, whose error is printed.
func Main(m *testing.M, open Open, plays map[string]func(dir, life string) error) {
	if play := strings.Fields(os.Getenv(playVariable)); len(play) == 3 {
		var err error
		switch name, dir, life := play[0], play[1], play[2]; name {
		case "work":
			err = work(open(dir), life)
		case "spend":
			err = spend(open(dir))
		case "change":
			err = change(open(dir))
		default:
			err = plays[name](dir, life)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// Run runs the tests.
func Run(t *testing.T, open Open) {
	for name, test := range map[string]func(t *testing.T, open Open){
		"records": testRecords, "accounts": testAccounts, "accounts meanwhile": testAccountsMeanwhile, "changes": testChanges,
		"killed at work": testKilledAtWork, "killed as it spends": testKilledAsItSpends, "killed in a change": testKilledInAChange,
	} {
		t.Run(name, func(t *testing.T) { test(t, open) })
	}
}

// with opens a store for f.
func with(t *testing.T, open Open, dir string, f func(s store.Store)) {
	t.Helper()
	s := open(dir)
	defer s.Close()
	f(s)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func event(n uint64) supervisor.Event {
	return supervisor.Event{Seq: n, Type: "note", Data: fmt.Appendf(nil, `{"type":"note","n":%d}`, n)}
}

func digest(id string) [sha256.Size]byte { return sha256.Sum256([]byte(id)) }

// numbers are those of the events that are kept.
func numbers(t *testing.T, s store.Store, agent string) (all []uint64) {
	t.Helper()
	for e, err := range s.Events(agent, 0) {
		must(t, err)
		if want := event(e.Seq); e.Type != want.Type || string(e.Data) != string(want.Data) {
			t.Errorf("event %d is %s %s", e.Seq, e.Type, e.Data)
		}
		all = append(all, e.Seq)
	}
	return all
}

// past is what the records say of requests: "ID OUTCOME", or the id where there is none.
func past(t *testing.T, r supervisor.Records) (all []string) {
	t.Helper()
	r.Past(func(id string, sum [sha256.Size]byte, ended *supervisor.Result) {
		if sum != digest(id) {
			t.Errorf("the digest of %s is another", id)
		}
		if ended != nil {
			id += " " + string(ended.Outcome) + " " + ended.Text
		}
		all = append(all, id)
	})
	return all
}

// fill keeps something of each kind of an agent.
func fill(t *testing.T, s store.Store, agent, text string) {
	t.Helper()
	r, err := s.Open(agent, true)
	must(t, err)
	r.Append(event(r.Last() + 1))
	must(t, r.Accept("ended", digest("ended")))
	must(t, r.Accept("open", digest("open")))
	r.End(supervisor.Result{TurnID: "ended", Outcome: supervisor.Completed, Text: text})
	must(t, errors.Join(r.Close(), s.SetAccount(agent, &store.Account{Parent: text})))
}

// kept is what fill kept of an agent, by kind: the text, or "-".
func kept(t *testing.T, s store.Store, agent string) (events, requests, account string) {
	t.Helper()
	events, requests, account = "-", "-", "-"
	if len(numbers(t, s, agent)) > 0 {
		events = "kept"
	}
	outcome, err := s.Outcome(agent, "open")
	must(t, err)
	if outcome != "" {
		requests = "kept"
	}
	a, err := s.Account(agent)
	must(t, err)
	if a != nil {
		account = a.Parent
	}
	return events, requests, account
}

// check compares kept with "EVENTS REQUESTS ACCOUNT".
func check(t *testing.T, s store.Store, agent, want string) {
	t.Helper()
	events, requests, account := kept(t, s, agent)
	same(t, "of "+agent, strings.Join([]string{events, requests, account}, " "), want)
}

// What was recorded is there for the next one who opens it, in order, and for who looks
// meanwhile; one at a time has it open.
func testRecords(t *testing.T, open Open) {
	dir := t.TempDir()
	with(t, open, dir, func(s store.Store) {
		r, err := s.Open("a", false)
		must(t, err)
		same(t, "the last number of a new agent", r.Last(), uint64(0))
		for i, id := range []string{"2", "1", "3"} {
			must(t, r.Accept(id, digest(id)))
			r.Append(event(uint64(i+1) * 10))
		}
		if _, err := s.Open("a", false); !errors.Is(err, store.ErrInUse) {
			t.Errorf("opened twice: %v", err)
		}
		r.End(supervisor.Result{TurnID: "3", Outcome: supervisor.Cancelled})
		r.End(supervisor.Result{TurnID: "2", Outcome: supervisor.Completed, Text: "yes"})
		for id, want := range map[string]supervisor.Outcome{"1": supervisor.Crashed, "2": supervisor.Completed, "4": ""} {
			got, err := s.Outcome("a", id)
			must(t, err)
			same(t, "the outcome of "+id, got, want)
		}
		must(t, r.Close())
		if err := r.Accept("late", digest("late")); err == nil {
			t.Error("a request was recorded after the end")
		}
	})
	with(t, open, dir, func(s store.Store) {
		r, err := s.Open("a", false)
		must(t, err)
		for _, id := range []string{"1", "2", "5", "5"} { // another machine had accepted them
			must(t, r.Adopt(id, digest(id)))
		}
		same(t, "the requests", past(t, r), []string{"3 cancelled ", "2 completed yes", "1", "5"})
		same(t, "told again", past(t, r), []string(nil))
		must(t, r.Adopt("6", digest("6"))) // too late
		r.End(supervisor.Result{TurnID: "5", Outcome: supervisor.Crashed})
		late, err := s.Outcome("a", "6")
		must(t, err)
		same(t, "the outcome of what came too late", late, supervisor.Outcome(""))
		same(t, "the last number", r.Last(), uint64(30))
		r.Append(event(31))
		var read []uint64
		for e, err := range r.Read(10) {
			must(t, err)
			read = append(read, e.Seq)
		}
		same(t, "the events", read, []uint64{20, 30, 31})
		must(t, r.Close())
		must(t, s.SetAccount("a", &store.Account{Parent: "p"}))
		r, err = s.Open("a", true)
		must(t, err)
		same(t, "of another agent", len(past(t, r)), 0)
		must(t, r.Remove())
		check(t, s, "a", "- - p")
		check(t, s, "nobody", "- - -")
	})
}

func testAccounts(t *testing.T, open Open) {
	dir := t.TempDir()
	agents := uint64(3)
	for _, want := range []*store.Account{
		{Parent: "p", Spent: 1 << 62, Requests: 1, Estimated: 2, Input: 3, Output: 4, CacheRead: 5, CacheCreation: 6, Cost: 0.7, SpentUSD: 8.5},
		{Limits: &store.Limits{Tokens: 1, RequestsPerMinute: 2, TokensPerMinute: 3, CostUSD: 2.5, Concurrent: 4, Agents: &agents, Process: &protocol.ProcessLimits{
			MemoryBytes: 1, Processes: 2, OpenFiles: 3, CPUSeconds: 4, OutputBytesPerSecond: 5, TurnSeconds: 6,
		}}},
		nil,
	} {
		with(t, open, dir, func(s store.Store) { must(t, s.SetAccount("a", want)) })
		with(t, open, dir, func(s store.Store) {
			got, err := s.Account("a")
			must(t, err)
			same(t, "the account", got, want)
		})
	}
}

// An account may be set whatever becomes of the records: while they are opened and closed, too.
func testAccountsMeanwhile(t *testing.T, open Open) {
	with(t, open, t.TempDir(), func(s store.Store) {
		done := make(chan error)
		go func() {
			for n := range uint64(300) {
				if err := s.SetAccount("a", &store.Account{Spent: n + 1}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		for last := uint64(0); ; last++ {
			select {
			case err := <-done:
				must(t, err)
				a, err := s.Account("a")
				must(t, err)
				same(t, "spent at last", a.Spent, uint64(300))
				same(t, "the number of events", uint64(len(numbers(t, s, "a"))), last)
				return
			default:
			}
			r, err := s.Open("a", false)
			must(t, err)
			same(t, "the last number", r.Last(), last)
			r.Append(event(last + 1))
			must(t, r.Close())
		}
	})
}

func testChanges(t *testing.T, open Open) {
	with(t, open, t.TempDir(), func(s store.Store) {
		fill(t, s, "a", "mine")
		fill(t, s, "b", "earlier")
		must(t, s.Clone("a", "b"))
		check(t, s, "a", "kept kept mine")
		check(t, s, "b", "- - mine")
		must(t, errors.Join(s.Delete("b"), s.Rename("a", "b")))
		check(t, s, "a", "- - -")
		check(t, s, "b", "kept kept mine")
		must(t, s.Rename("a", "b")) // as after a kill
		check(t, s, "b", "kept kept mine")
		fill(t, s, ".t", "temporary")
		fill(t, s, ".t.events", "another")
		must(t, s.Retain(func(agent string) bool { return agent != ".t" }))
		check(t, s, ".t", "- - -")
		check(t, s, ".t.events", "kept kept another")
		must(t, errors.Join(s.Delete("b"), s.Delete("b")))
		check(t, s, "b", "- - -")
		must(t, s.Clone("nobody", "b"))
		check(t, s, "b", "- - -")
	})
}
