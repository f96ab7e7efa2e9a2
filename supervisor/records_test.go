package supervisor_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// diary are records of events in memory. What its lost names is not kept.
type diary struct {
	supervisor.NoRecords

	mu      sync.Mutex // guards all below
	events  []supervisor.Event
	last    uint64
	lost    func(seq uint64) bool
	reading func()
}

func (d *diary) Last() uint64 { return d.last }

func (d *diary) Append(e supervisor.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost == nil || !d.lost(e.Seq) {
		d.events = append(d.events, e)
	}
}

func (d *diary) Read(after uint64) iter.Seq2[supervisor.Event, error] {
	return func(yield func(supervisor.Event, error) bool) {
		d.mu.Lock()
		events := slices.Clone(d.events)
		d.mu.Unlock()
		if d.reading != nil {
			d.reading()
		}
		for _, e := range events {
			if e.Seq > after && !yield(e, nil) {
				return
			}
		}
	}
}

// ledger are records of requests in memory.
type ledger struct {
	supervisor.NoRecords

	past   []pastTurn
	found  map[string]supervisor.Result
	hold   chan struct{} // Accept and End wait for a value, unless nil
	refuse error         // of Accept
	onEnd  func(supervisor.Result)

	mu       sync.Mutex // guards all below
	accepted []string
	unnamed  []string // of those, what nobody can repeat
	results  []supervisor.Result
	ended    string // how: "closed", "removed"
}

type pastTurn struct {
	id, message string
	result      *supervisor.Result
}

func (l *ledger) Past(yield func(string, [sha256.Size]byte, *supervisor.Result)) {
	for _, p := range l.past {
		yield(p.id, sha256.Sum256([]byte(p.message)), p.result)
	}
}

func (l *ledger) Find(ids ...string) (map[string]supervisor.Result, error) { return l.found, nil }

func (l *ledger) wait() {
	if l.hold != nil {
		<-l.hold
	}
}

func (l *ledger) AcceptUnnamed(id string, digest [sha256.Size]byte) error {
	l.mu.Lock()
	l.unnamed = append(l.unnamed, id)
	l.mu.Unlock()
	return l.Accept(id, digest)
}

func (l *ledger) Accept(id string, _ [sha256.Size]byte) error {
	l.wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return l.refuse
	}
	l.accepted = append(l.accepted, id)
	return nil
}

func (l *ledger) End(r supervisor.Result) {
	l.wait()
	if l.onEnd != nil {
		l.onEnd(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results = append(l.results, r)
}

func (l *ledger) Close() error { l.ended = "closed"; return nil }

func (l *ledger) Remove() error { l.ended = "removed"; return nil }

// openRecords opens the records of agents.
type openRecords func(agent string) (supervisor.Records, error)

func (f openRecords) Open(agent string, _ bool) (supervisor.Records, error) { return f(agent) }

// remembering is run with records for each agent.
func remembering(t *testing.T, records func(id string) supervisor.Records, plan func(supervisor.Spec, int) supervisortest.Play, f func(h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		launcher := &supervisortest.Launcher{Plan: plan}
		h := &house{T: t, launcher: launcher}
		h.sup = supervisor.NewUnspread(supervisor.Options{
			Launcher: launcher,
			Store:    openRecords(func(id string) (supervisor.Records, error) { return records(id), nil }),
		})
		defer h.drain()
		f(h)
	})
}

// both are the records of a diary and a ledger.
type both struct {
	*ledger
	events *diary
}

func (b both) Last() uint64                                         { return b.events.Last() }
func (b both) Append(e supervisor.Event)                            { b.events.Append(e) }
func (b both) Read(after uint64) iter.Seq2[supervisor.Event, error] { return b.events.Read(after) }

// with is the same records for all agents of a test.
func with(d *diary, l *ledger) func(string) supervisor.Records {
	return func(string) supervisor.Records { return both{l, d} }
}

// all reads everything that is kept, until n events have come.
func (h *house) all(a *supervisor.Agent, after uint64, n int) []string {
	h.Helper()
	sub := h.subscribe(a, after)
	defer sub.Close()
	var got []string
	for len(got) < n {
		batch, err := sub.Next(h.Context())
		if err != nil {
			h.Fatal(err)
		}
		for _, e := range batch {
			got = append(got, fmt.Sprintf("%d %s", e.Seq, e.Data))
		}
	}
	return got
}

// An outcome is recorded before anybody is told of it, and what a client was told
// is what is recorded.
func TestOutcomeIsRecordedFirst(t *testing.T) {
	l := &ledger{}
	var h *house
	l.onEnd = func(r supervisor.Result) {
		a, err := h.sup.Agent("alice")
		if err != nil {
			h.Error(err)
			return
		}
		sub, err := a.Subscribe(0)
		if err != nil { // it is being removed
			return
		}
		defer sub.Close()
		batch, _ := sub.Next(h.Context()) // there is something
		for _, e := range batch {
			if e.Type == "turn_end" && strings.Contains(string(e.Data), `"`+r.TurnID+`"`) {
				h.Errorf("%s was told before it was recorded", r.TurnID)
			}
		}
	}
	remembering(t, with(&diary{}, l), series(supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		switch p.Message {
		case "crash":
			crash(c, p)
		case "wait":
			supervisortest.UntilAborted(c, p)
		default:
			supervisortest.Echo(c, p)
		}
	}}), func(house *house) {
		h = house
		a := h.start("alice")
		want := []supervisor.Outcome{supervisor.Completed, supervisor.Cancelled, supervisor.Crashed, supervisor.Cancelled}
		h.outcome(h.prompt(a, "1", "hi"), want[0])
		running, waiting := h.prompt(a, "3", "wait"), h.prompt(a, "2", "x")
		a.Abort(h.Context(), "2")
		h.outcome(waiting, want[1])
		a.Abort(h.Context(), "3")
		h.outcome(running, supervisor.Cancelled)
		h.outcome(h.prompt(a, "4", "crash"), want[2])
		last := h.prompt(a, "5", "wait")
		if err := h.sup.Remove(h.Context(), "alice"); err != nil {
			h.Fatal(err)
		}
		h.outcome(last, want[3])
		if want := []string{"1", "3", "2", "4", "5"}; !slices.Equal(l.accepted, want) {
			h.Errorf("accepted %v, want %v", l.accepted, want)
		}
		var got []string
		for _, r := range l.results {
			got = append(got, r.TurnID+" "+string(r.Outcome)+" "+r.Text)
		}
		if want := []string{"1 completed hi", "2 cancelled ", "3 cancelled working", "4 crashed half", "5 cancelled "}; !slices.Equal(got, want) {
			h.Errorf("recorded %q, want %q", got, want)
		}
		if l.ended != "closed" {
			h.Errorf("the outcomes are %q", l.ended)
		}
	})
}

// A disk that hangs holds up its agent and who waits for that: not the list of
// agents, not another agent, nor that one's removal.
func TestSlowDisk(t *testing.T) {
	slow := &ledger{}
	records := func(id string) supervisor.Records {
		if id == "alice" {
			return slow
		}
		return &ledger{}
	}
	remembering(t, records, nil, func(h *house) {
		slow.hold = make(chan struct{}) // of the bubble
		a, b := h.start("alice"), h.start("bob")
		told := make(chan supervisor.Result, 1)
		go func() {
			turn, err := a.Prompt(h.Context(), protocol.Prompt{ID: "1", Message: "hi"}, supervisor.PromptOptions{})
			if err != nil {
				h.Error(err)
				return
			}
			r, _ := turn.Wait(h.Context())
			told <- r
		}()
		for _, at := range []string{"accepting", "ending"} {
			synctest.Wait()
			if n := len(h.sup.Agents()); n != 2 {
				h.Errorf("%d agents while %s", n, at)
			}
			if info := a.Info(); at == "ending" && info.Running != "1" {
				h.Errorf("%q runs while %s", info.Running, at)
			}
			h.outcome(h.prompt(b, "b"+at, "x"), supervisor.Completed)
			if len(told) > 0 {
				h.Errorf("told while %s", at)
			}
			slow.hold <- struct{}{}
		}
		if r := <-told; r.Outcome != supervisor.Completed {
			h.Errorf("outcome %+v", r)
		}
		go func() { slow.hold <- struct{}{} }()
		h.prompt(a, "2", "x")
		removed := make(chan error, 1)
		go func() { removed <- h.sup.Remove(h.Context(), "alice") }()
		synctest.Wait()
		if err := h.sup.Remove(h.Context(), "bob"); err != nil {
			h.Errorf("remove another agent: %v", err)
		}
		close(slow.hold)
		if err := <-removed; err != nil {
			h.Error(err)
		}
	})
}

// While a prompt is recorded it counts as one that waits, and the same prompt again, in
// spite of a disk that hangs, waits for no longer than its caller does.
func TestAskedWhileRecorded(t *testing.T) {
	full := errors.New("no space left on device")
	for _, refuse := range []error{nil, full} {
		l := &ledger{refuse: refuse}
		remembering(t, with(&diary{}, l), nil, func(h *house) {
			l.hold = make(chan struct{})
			a, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice", QueueLimit: 1})
			if err != nil {
				h.Fatal(err)
			}
			ask := func(ctx context.Context, id, message string, o supervisor.PromptOptions) <-chan error {
				failed := make(chan error, 1)
				go func() {
					_, err := a.Prompt(ctx, protocol.Prompt{ID: id, Message: message}, o)
					failed <- err
				}()
				synctest.Wait()
				return failed
			}
			told := func(failed <-chan error) error {
				select {
				case err := <-failed:
					return err
				default:
					return errors.New("it waits")
				}
			}
			first := ask(h.Context(), "1", "x", supervisor.PromptOptions{})
			again := ask(h.Context(), "1", "x", supervisor.PromptOptions{})
			other := ask(h.Context(), "1", "y", supervisor.PromptOptions{})
			ctx, cancel := context.WithCancel(h.Context())
			gone := ask(ctx, "1", "x", supervisor.PromptOptions{})
			cancel()
			synctest.Wait()
			if err := told(gone); !errors.Is(err, context.Canceled) {
				h.Errorf("joined and gave up: %v", err)
			}
			if err := told(ask(h.Context(), "2", "x", supervisor.PromptOptions{})); !errors.Is(err, supervisor.ErrQueueFull) {
				h.Errorf("beside a full queue: %v", err)
			}
			if err := told(ask(h.Context(), "2", "x", supervisor.PromptOptions{WhenBusy: supervisor.Reject})); !errors.Is(err, supervisor.ErrBusy) {
				h.Errorf("beside a prompt that is recorded: %v", err)
			}
			if err := h.sup.RemoveIdle(h.Context(), "alice"); !errors.Is(err, supervisor.ErrBusy) {
				h.Errorf("removed while a prompt is recorded: %v", err)
			}
			close(l.hold)
			synctest.Wait()
			wantOther := supervisor.ErrTurnConflict
			if refuse != nil {
				wantOther = refuse
			}
			for _, c := range []struct {
				got  <-chan error
				want error
			}{{first, refuse}, {again, refuse}, {other, wantOther}} {
				if err := told(c.got); !errors.Is(err, c.want) {
					h.Errorf("%v, want %v", err, c.want)
				}
			}
			if refuse == nil && len(l.accepted) != 1 {
				h.Errorf("accepted %v", l.accepted)
			}
		})
	}
}

// A prompt that is accepted as its agent goes is cancelled, and recorded so.
func TestAcceptedWhileRemoved(t *testing.T) {
	l := &ledger{}
	remembering(t, with(&diary{}, l), nil, func(h *house) {
		l.hold = make(chan struct{})
		a := h.start("alice")
		turns := make(chan *supervisor.Turn, 1)
		go func() {
			turn, err := a.Prompt(h.Context(), protocol.Prompt{ID: "1"}, supervisor.PromptOptions{})
			if err != nil {
				h.Error(err)
			}
			turns <- turn
		}()
		synctest.Wait()
		removed := make(chan error, 1)
		go func() { removed <- h.sup.Remove(h.Context(), "alice") }()
		synctest.Wait()
		close(l.hold)
		h.outcome(<-turns, supervisor.Cancelled)
		if err := <-removed; err != nil || len(l.results) != 1 || l.ended != "closed" {
			h.Errorf("%v, recorded %v, %s", err, l.results, l.ended)
		}
	})
}

// What nobody can repeat is accepted as such.
func TestUnnamed(t *testing.T) {
	l := &ledger{}
	remembering(t, with(&diary{}, l), nil, func(h *house) {
		a := h.start("alice")
		for id, unnamed := range map[string]bool{"1": true, "2": false} {
			turn, err := a.Prompt(h.Context(), protocol.Prompt{ID: id, Message: "x"}, supervisor.PromptOptions{Unnamed: unnamed})
			if err != nil {
				h.Fatal(err)
			}
			h.outcome(turn, supervisor.Completed)
		}
	})
	if !slices.Equal(l.unnamed, []string{"1"}) || len(l.accepted) != 2 {
		t.Errorf("accepted are %q, of these without a name %q", l.accepted, l.unnamed)
	}
}

// What cannot be recorded is refused, and harms nothing: the id is free.
func TestNotRecorded(t *testing.T) {
	full := errors.New("no space left on device")
	l := &ledger{refuse: full}
	remembering(t, with(&diary{}, l), nil, func(h *house) {
		a := h.start("alice")
		_, err := a.Prompt(h.Context(), protocol.Prompt{ID: "1", Message: "x"}, supervisor.PromptOptions{})
		if !errors.Is(err, supervisor.ErrUnrecorded) || !errors.Is(err, full) {
			h.Errorf("Prompt = %v, want ErrUnrecorded", err)
		}
		l.refuse = nil
		if r := h.outcome(h.prompt(a, "1", "other"), supervisor.Completed); r.Replayed {
			h.Errorf("result %+v", r)
		}
	})
}

// A later server knows what an earlier one has told, and ends what that could not:
// as the session has it, or as crashed, with what had been said.
func TestRecall(t *testing.T) {
	d := &diary{last: 1000}
	for i, data := range []string{
		`{"type":"turn_start","turn_id":"done"}`, `{"type":"message_update","event":{"type":"text_delta","delta":"yes"}}`,
		`{"type":"turn_start","turn_id":"cut"}`, `{"type":"message_update","event":{"type":"text_delta","delta":"void"}}`,
		`{"type":"turn_start","turn_id":"cut","attempt":2}`, `{"type":"message_update","event":{"type":"text_delta","delta":"so"}}`,
		`{"type":"turn_end","turn_id":"queued","outcome":"cancelled"}`, `{"type":"message_update","event":{"type":"text_delta","delta":" f"}}`,
		`{"type":"message_update","event":{"type":"text_delta","delta":"ar"}}`,
	} {
		typ, _, _ := strings.Cut(strings.TrimPrefix(data, `{"type":"`), `"`)
		d.events = append(d.events, supervisor.Event{Seq: uint64(i + 1), Type: typ, Data: []byte(data)})
	}
	l := &ledger{
		past: []pastTurn{
			{"old", "m", &supervisor.Result{TurnID: "old", Outcome: supervisor.Completed, Text: "was"}},
			{"done", "m", nil},
			{"cut", "m", nil},
			{"waited", "m", nil},
		},
		found: map[string]supervisor.Result{"done": {TurnID: "done", Outcome: supervisor.Completed, Text: "yes"}},
	}
	remembering(t, with(d, l), nil, func(h *house) {
		a := h.start("alice")
		for _, c := range []struct {
			id      string
			outcome supervisor.Outcome
			text    string
			attempt int
		}{
			{"old", supervisor.Completed, "was", 0},
			{"done", supervisor.Completed, "yes", 1},
			{"cut", supervisor.Crashed, "so far", 2},
			{"waited", supervisor.Crashed, "", 0},
		} {
			r := h.outcome(h.prompt(a, c.id, "m"), c.outcome)
			if r.Text != c.text || !r.Replayed || r.Attempt != c.attempt {
				h.Errorf("%s: %+v", c.id, r)
			}
			if c.outcome == supervisor.Crashed && r.Err.Error() != "the server ended before the turn did" {
				h.Errorf("%s: %v", c.id, r.Err)
			}
			if _, err := a.Prompt(h.Context(), protocol.Prompt{ID: c.id, Message: "n"}, supervisor.PromptOptions{}); !errors.Is(err, supervisor.ErrTurnConflict) {
				h.Errorf("%s with other content: %v", c.id, err)
			}
		}
		if len(l.results) != 3 || len(l.accepted) != 0 {
			h.Errorf("recorded %d outcomes, accepted %v", len(l.results), l.accepted)
		}
		got := h.all(a, 8, 7)
		want := []string{
			`9 {"type":"message_update","event":{"type":"text_delta","delta":"ar"}}`,
			`1000 {"type":"gap","from":10,"to":1000}`,
			`1001 {"type":"turn_end","turn_id":"done","outcome":"completed"}`,
			`1002 {"type":"turn_end","turn_id":"cut","outcome":"crashed","error":"the server ended before the turn did"}`,
			`1003 {"type":"turn_end","turn_id":"waited","outcome":"crashed","error":"the server ended before the turn did"}`,
			`1004 {"type":"agent_state","state":"starting","incarnation":1}`,
			`1005 {"type":"agent_state","state":"ready","incarnation":1}`,
		}
		if !slices.Equal(got, want) {
			h.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A memory that was opened for nothing goes with the start that failed; one that
// was there before stays.
func TestMemoryEnds(t *testing.T) {
	refused := supervisortest.Play{Refuse: errors.New("no model")}
	for _, c := range []struct {
		name string
		last uint64
		play supervisortest.Play
		want string
	}{
		{"ended", 0, supervisortest.Play{}, "closed"},
		{"new and not started", 0, refused, "removed"},
		{"not started again", 7, refused, "closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, l := &diary{last: c.last}, &ledger{}
			remembering(t, with(d, l), always(c.play), func(h *house) {
				_, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice"})
				if (err != nil) != (c.play.Refuse != nil) {
					h.Errorf("Start = %v", err)
				}
				if err == nil {
					err = h.sup.Remove(h.Context(), "alice")
				}
				if l.ended != c.want {
					h.Errorf("the records are %s, want %s; %v", l.ended, c.want, err)
				}
			})
		})
	}
}

// A memory that cannot be opened is a start that fails; the name stays free.
func TestMemoryNotOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("in use by another server")
		opening := make(chan struct{})
		h := &house{T: t, launcher: &supervisortest.Launcher{}}
		h.sup = supervisor.New(supervisor.Options{
			Launcher: h.launcher,
			Store: openRecords(func(string) (supervisor.Records, error) {
				<-opening
				return supervisor.NoRecords{}, broken
			}),
		})
		started := make(chan error, 1)
		go func() {
			_, err := h.sup.Start(context.Background(), supervisor.Spec{ID: "alice"})
			started <- err
		}()
		synctest.Wait()
		if _, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice"}); !errors.Is(err, supervisor.ErrExists) {
			h.Errorf("a second Start meanwhile = %v, want ErrExists", err)
		}
		opening <- struct{}{}
		err := <-started
		if _, ok := errors.AsType[*supervisor.StartError](err); !ok || !errors.Is(err, broken) {
			h.Errorf("Start = %v", err)
		}
		broken = nil
		close(opening)
		h.start("alice")
		h.drain()
		if _, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "bob"}); !errors.Is(err, supervisor.ErrDraining) {
			h.Errorf("Start after Run = %v", err)
		}
	})
}
