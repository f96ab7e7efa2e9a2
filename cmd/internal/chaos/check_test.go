package chaos_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"nexus.internal/cmd/internal/chaos"
)

const ms = time.Millisecond

// good is a history that keeps every promise: a send that completes and is
// replayed, one that is lost with the server and found to have crashed, one
// that is cancelled, an event stream with a gap, and a control agent that fails
// while the server is down.
func good() []chaos.Record {
	return []chaos.Record{
		{At: 1 * ms, Kind: chaos.ServerUp},
		{At: 2 * ms, Kind: chaos.Subscribed, Agent: "prey", Sub: 1},
		{At: 3 * ms, Kind: chaos.Sent, Agent: "prey", Request: "r1", Try: 1},
		{At: 4 * ms, Kind: chaos.Seen, Agent: "prey", Sub: 1, Seq: 1, Type: "agent_state", Sum: 11},
		{At: 5 * ms, Kind: chaos.Seen, Agent: "prey", Sub: 1, Seq: 2, Type: "turn_start", Request: "r1", Sum: 12},
		{At: 6 * ms, Kind: chaos.Seen, Agent: "prey", Sub: 1, Seq: 3, Type: "turn_end", Request: "r1", Outcome: "completed", Sum: 13, Said: 7, Whole: true},
		{At: 7 * ms, Kind: chaos.Answered, Agent: "prey", Request: "r1", Try: 1, Outcome: "completed", Sum: 7, Said: 7, Whole: true},
		{At: 8 * ms, Kind: chaos.Sent, Agent: "prey", Request: "r1", Try: 2},
		{At: 9 * ms, Kind: chaos.Answered, Agent: "prey", Request: "r1", Try: 2, Outcome: "completed", Sum: 7, Replayed: true},
		{At: 10 * ms, Kind: chaos.AttackBegan},
		{At: 10 * ms, Kind: chaos.Did, Action: chaos.Kill, Agent: "prey"},
		{At: 10 * ms, Kind: chaos.Skipped, Action: chaos.FillDisk, Text: "there is none"},
		{At: 11 * ms, Kind: chaos.Sent, Agent: "prey", Request: "r2", Try: 1},
		{At: 12 * ms, Kind: chaos.Sent, Agent: "control", Request: "c1", Try: 1},
		{At: 13 * ms, Kind: chaos.ServerDown},
		{At: 14 * ms, Kind: chaos.Lost, Agent: "prey", Request: "r2", Try: 1},
		{At: 15 * ms, Kind: chaos.Lost, Agent: "control", Request: "c1", Try: 1},
		{At: 16 * ms, Kind: chaos.ServerUp},
		{At: 17 * ms, Kind: chaos.Sent, Agent: "prey", Request: "r2", Try: 2},
		{At: 18 * ms, Kind: chaos.Answered, Agent: "prey", Request: "r2", Try: 2, Outcome: "crashed"},
		{At: 19 * ms, Kind: chaos.Sent, Agent: "control", Request: "c1", Try: 2},
		{At: 20 * ms, Kind: chaos.Answered, Agent: "control", Request: "c1", Try: 2, Outcome: "crashed"},
		{At: 21 * ms, Kind: chaos.Subscribed, Agent: "prey", Sub: 2, Seq: 2},
		{At: 22 * ms, Kind: chaos.Seen, Agent: "prey", Sub: 2, Seq: 3, Type: "turn_end", Request: "r1", Outcome: "completed", Sum: 13},
		{At: 23 * ms, Kind: chaos.Seen, Agent: "prey", Sub: 2, From: 4, Seq: 8, Type: "gap"},
		{At: 24 * ms, Kind: chaos.Seen, Agent: "prey", Sub: 2, Seq: 9, Type: "message_update", Sum: 19},
		{At: 25 * ms, Kind: chaos.Sent, Agent: "prey", Request: "r3", Try: 1},
		{At: 26 * ms, Kind: chaos.CancelSaid, Agent: "prey", Request: "r3", Done: true},
		{At: 27 * ms, Kind: chaos.Answered, Agent: "prey", Request: "r3", Try: 1, Outcome: "cancelled"},
		{At: 28 * ms, Kind: chaos.Seen, Agent: "prey", Sub: 2, Seq: 10, Type: "turn_end", Request: "r3", Outcome: "cancelled", Sum: 20},
		{At: 30 * ms, Kind: chaos.Subscribed, Agent: "prey", Sub: 3},
		{At: 31 * ms, Kind: chaos.Seen, Agent: "prey", Sub: 3, Seq: 1, Type: "agent_state", Sum: 11},
		{At: 32 * ms, Kind: chaos.Sent, Agent: "prey", Request: "r4", Try: 1},
		{At: 33 * ms, Kind: chaos.Refused, Agent: "prey", Request: "r4", Try: 1, Type: "QUEUE_FULL"},
		{At: 40 * ms, Kind: chaos.Sent, Agent: "control", Request: "c2", Try: 1},
		{At: 45 * ms, Kind: chaos.Subscribed, Agent: "control", Sub: 1},
		{At: 46 * ms, Kind: chaos.Seen, Agent: "control", Sub: 1, Seq: 1, Type: "turn_start", Request: "c2", Sum: 21},
		{At: 47 * ms, Kind: chaos.Seen, Agent: "control", Sub: 1, Seq: 2, Type: "turn_end", Request: "c2", Outcome: "completed", Sum: 22},
		{At: 48 * ms, Kind: chaos.Seen, Agent: "control", Sub: 1, From: 3, Seq: 9, Type: "gap"},
		{At: 50 * ms, Kind: chaos.Answered, Agent: "control", Request: "c2", Try: 1, Outcome: "completed", Sum: 5},
		{At: 60 * ms, Kind: chaos.AttackEnded},
		{At: 61 * ms, Kind: chaos.Found, Agent: "prey", Request: "r1", Sum: 7},
		{At: 62 * ms, Kind: chaos.Found, Agent: "prey", Request: "r2", Sum: 1},
		{At: 63 * ms, Kind: chaos.Found, Agent: "control", Request: "c2", Sum: 5},
		{At: 63 * ms, Kind: chaos.Read, Agent: "prey"},
		{At: 64 * ms, Kind: chaos.Looked, Text: "processes"},
	}
}

func judge(history []chaos.Record) *chaos.Report {
	c := chaos.NewChecker(map[string]bool{"control": true}, 100*ms)
	for _, r := range history {
		c.Observe(r)
	}
	return c.Report(chaos.Plan{})
}

func TestGoodHistory(t *testing.T) {
	if r := judge(good()); !r.Passed() {
		t.Errorf("got %v", r.Broken)
	}
}

// Each case makes the good history a bad one, by one fact, and the checker says
// which promise that breaks, and how.
func TestBadHistories(t *testing.T) {
	at := func(h []chaos.Record, when time.Duration) *chaos.Record {
		for i := range h {
			if h[i].At == when*ms {
				return &h[i]
			}
		}
		t.Fatalf("nothing happens at %d ms", when)
		return nil
	}
	for _, test := range []struct {
		name    string
		spoil   func(h []chaos.Record)
		promise chaos.Promise
		says    string
	}{
		{"another outcome", func(h []chaos.Record) { at(h, 9).Outcome = "crashed" }, chaos.OneOutcome, "r1 of prey was completed, and then crashed"},
		{"another text", func(h []chaos.Record) { at(h, 9).Sum = 8 }, chaos.OneOutcome, "different texts"},
		{"not replayed", func(h []chaos.Record) { at(h, 9).Replayed = false }, chaos.OneOutcome, "is not replayed"},
		{"the event says otherwise", func(h []chaos.Record) { at(h, 7).Outcome, at(h, 9).Outcome = "cancelled", "cancelled" }, chaos.OneOutcome, "its event says completed"},
		{"no outcome", func(h []chaos.Record) { at(h, 24).Type, at(h, 24).Request = "turn_start", "r5" }, chaos.OneOutcome, "r5 of prey was accepted and has no outcome"},
		{"two starts", func(h []chaos.Record) { at(h, 24).Type, at(h, 24).Request = "turn_start", "r1" }, chaos.OneOutcome, "ran twice: events 2 and 9"},
		{"two ends", func(h []chaos.Record) { at(h, 24).Type, at(h, 24).Request = "turn_end", "r1" }, chaos.OneOutcome, "ended twice: events 3 and 9"},
		{"cancelled and not", func(h []chaos.Record) { at(h, 27).Outcome = "failed" }, chaos.OneOutcome, "r3 of prey was cancelled, as the cancel was told, and failed"},
		{"not found", func(h []chaos.Record) { at(h, 61).Request = "r9" }, chaos.Remembered, "r1 of prey was answered, and is not in the conversation"},
		{"found otherwise", func(h []chaos.Record) { at(h, 61).Sum = 8 }, chaos.Remembered, "stands otherwise"},
		{"found twice", func(h []chaos.Record) { at(h, 62).Request, at(h, 62).Sum = "r1", 7 }, chaos.Remembered, "stands 2 times"},
		{"a hole", func(h []chaos.Record) { at(h, 24).Seq = 10 }, chaos.Numbered, "after event 8 comes 10, without a gap"},
		{"a hole after a new subscription", func(h []chaos.Record) { at(h, 21).Seq = 1 }, chaos.Numbered, "after event 1 comes 3, without a gap"},
		{"a beginning that is missing", func(h []chaos.Record) { at(h, 31).Seq = 2 }, chaos.Numbered, "after event 0 comes 2"},
		{"a double", func(h []chaos.Record) { at(h, 5).Seq = 1 }, chaos.Numbered, "comes 1 again"},
		{"a gap too late", func(h []chaos.Record) { at(h, 23).From = 5 }, chaos.Numbered, "after event 3 comes 5"},
		{"a gap that goes back", func(h []chaos.Record) { at(h, 23).Seq = 3 }, chaos.Numbered, "a gap from 4 to 3"},
		{"another event of a number", func(h []chaos.Record) { at(h, 22).Sum = 14 }, chaos.Numbered, "event 3 is another than before"},
		{"something left", func(h []chaos.Record) {
			*at(h, 64) = chaos.Record{At: 64 * ms, Kind: chaos.Left, Text: "process 7: sleep"}
		}, chaos.NothingLeft, "process 7: sleep"},
		{"nobody looked", func(h []chaos.Record) { at(h, 64).Kind = chaos.Did }, chaos.NothingLeft, "nobody looked"},
		{"a control agent that crashed", func(h []chaos.Record) { at(h, 50).Outcome = "crashed" }, chaos.ControlServed, "c2 of control, which nobody attacked: crashed"},
		{"another text than the events told", func(h []chaos.Record) { at(h, 6).Said = 8 }, chaos.OneOutcome, "r1 of prey (completed) was answered with another text than its events told"},
		{"another text than a cancelled one said", func(h []chaos.Record) {
			at(h, 27).Said, at(h, 27).Whole, at(h, 28).Said, at(h, 28).Whole = 1, true, 2, true
		}, chaos.OneOutcome, "r3 of prey (cancelled) was answered with another text"},
		{"no turn_end", func(h []chaos.Record) { at(h, 28).Type = "message_end" }, chaos.OneOutcome, "r3 of prey was answered as cancelled, and no turn_end told that"},
		{"no turn_end before the next turn", func(h []chaos.Record) {
			at(h, 24).Type, at(h, 24).Request = "turn_start", "r4"
			at(h, 28).Type = "turn_start"
		}, chaos.OneOutcome, "r4 of prey began at event 9, and at 10 the next turn, without its turn_end"},
		{"given up", func(h []chaos.Record) { at(h, 33).Kind = chaos.GaveUp }, chaos.OneOutcome, "r4 of prey was given up: it has no outcome"},
		{"a conversation that cannot be read", func(h []chaos.Record) { at(h, 61).Kind, at(h, 61).Text = chaos.Unread, "no" }, chaos.Remembered, "of prey could not be read: no"},
		{"a gap over what is kept", func(h []chaos.Record) {
			*at(h, 31) = chaos.Record{At: 9 * time.Second, Kind: chaos.Seen, Agent: "prey", Sub: 3, From: 1, Seq: 5, Type: "gap"}
			at(h, 13).At, at(h, 16).At = 5*time.Second, 6*time.Second
		}, chaos.Numbered, "a gap from 1 to 5 hides event 1, which is kept"},
		{"a gap too many", func(h []chaos.Record) {
			at(h, 28).Type, at(h, 28).From, at(h, 28).Seq = "gap", 10, 12
		}, chaos.Numbered, "a gap from 10 to 12, and nothing that could have lost them"},
		{"events that do not come again", func(h []chaos.Record) { at(h, 31).Kind = chaos.Behind }, chaos.Numbered, "event 1 was seen, and not when all were asked for again"},
		{"a server that died", func(h []chaos.Record) { at(h, 60).Kind, at(h, 60).Text = chaos.ServerDied, "exit status 2" }, chaos.Lives, "exit status 2"},
		{"a control agent that was refused", func(h []chaos.Record) {
			*at(h, 45) = chaos.Record{At: 45 * ms, Kind: chaos.Refused, Agent: "control", Request: "c2", Try: 1, Text: "full"}
		}, chaos.ControlServed, "c2 of control, which nobody attacked, was refused: full"},
		{"a control agent whose connection broke", func(h []chaos.Record) {
			*at(h, 45) = chaos.Record{At: 45 * ms, Kind: chaos.Lost, Agent: "control", Request: "c2", Try: 1, Text: "broken"}
		}, chaos.ControlServed, "c2 of control, which nobody attacked, was refused: broken"},
		{"a control agent that waited over tries", func(h []chaos.Record) {
			for i := range h {
				if h[i].At >= 45*ms {
					h[i].At += 100 * ms
				}
			}
			at(h, 145).Kind, at(h, 145).Request, at(h, 145).Try = chaos.Sent, "c2", 2
			at(h, 150).Try = 2
		}, chaos.ControlServed, "c2 of control, which nobody attacked, took 0.1 s"},
		{"a control agent that waited", func(h []chaos.Record) {
			for i := range h {
				if h[i].At >= 50*ms {
					h[i].At += 100 * ms
				}
			}
		}, chaos.ControlServed, "took 0.1 s"},
		{"a control agent without an answer", func(h []chaos.Record) { at(h, 20).Kind = chaos.Lost }, chaos.ControlServed, "c1 of control, which nobody attacked, was never answered"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := good()
			test.spoil(h)
			r := judge(h)
			if got := strings.Join(r.Broken[test.promise], "\n"); !strings.Contains(got, test.says) {
				t.Errorf("%s: got %q, want …%s…", test.promise, got, test.says)
			}
			if r.Passed() {
				t.Error("it is said to have held")
			}
		})
	}
}

// What was not attacked is not said to have held, and neither is it with an
// attack less.
func TestNotTried(t *testing.T) {
	for name, without := range map[string]func(chaos.Record) bool{
		"no process of an agent was killed":           func(r chaos.Record) bool { return r.Action == chaos.Kill },
		"the disk was not filled":                     func(r chaos.Record) bool { return r.Action == chaos.FillDisk },
		"the server was not killed and started again": func(r chaos.Record) bool { return r.Kind == chaos.ServerUp },
		"no send was answered under attack":           func(r chaos.Record) bool { return r.Agent == "control" },
	} {
		r := judge(slices.DeleteFunc(good(), without))
		var text strings.Builder
		if err := r.Print(&text); err != nil {
			t.Fatal(err)
		}
		if r.Passed() || !slices.Contains(r.NotTried, name) || strings.Contains(text.String(), " ok\n") {
			t.Errorf("%s: held %v, not tried %q\n%s", name, r.Passed(), r.NotTried, &text)
		}
	}
}

// What a dead server cannot tell any more is no violation of another promise.
func TestDeadServer(t *testing.T) {
	h := good()
	for i := range h {
		if h[i].At == 50*ms {
			h[i] = chaos.Record{At: 50 * ms, Kind: chaos.ServerDied, Text: "exit status 2"}
		}
		if h[i].At == 63*ms {
			h[i] = chaos.Record{At: 63 * ms, Kind: chaos.Sent, Agent: "prey", Request: "r7", Try: 1}
		}
	}
	r := judge(h)
	if r.Counts[chaos.Lives] != 1 || len(r.Counts) != 1 {
		t.Errorf("got %v", r.Broken)
	}
}

func TestLatencies(t *testing.T) {
	h := good()
	r := judge(h)
	// The first try of c1 met the death of the server, its second and c2 did not.
	if want := (chaos.Latency{Tries: 2, P50: 10 * ms, P99: 10 * ms, Max: 10 * ms}); r.Chaos != want || r.Quiet != (chaos.Latency{}) {
		t.Errorf("got %+v quiet, %+v under attack, want none and %+v", r.Quiet, r.Chaos, want)
	}
}

// An event that was lost with the server is told anew; nothing else.
func TestWhatMayBeForgotten(t *testing.T) {
	told := func(outcome string, between ...chaos.RecordKind) []chaos.Record {
		h := append(good(), chaos.Record{At: 70 * ms, Kind: chaos.Subscribed, Agent: "prey", Sub: 4, Seq: 10},
			chaos.Record{At: 71 * ms, Kind: chaos.Seen, Agent: "prey", Sub: 4, Seq: 11, Type: "turn_end", Request: "r6", Outcome: "completed", Sum: 20})
		for _, what := range between {
			h = append(h, chaos.Record{At: 72 * ms, Kind: what})
		}
		return append(h,
			chaos.Record{At: 73 * ms, Kind: chaos.Seen, Agent: "prey", Sub: 4, Seq: 12, Type: "turn_end", Request: "r6", Outcome: outcome, Sum: 20})
	}
	if r := judge(told("completed", chaos.ServerDown, chaos.ServerUp)); !r.Passed() {
		t.Errorf("told anew: %v", r.Broken)
	}
	if r := judge(told("completed")); r.Passed() {
		t.Error("the same server may tell it anew")
	}
	if r := judge(told("crashed", chaos.ServerDown, chaos.ServerUp)); r.Passed() {
		t.Error("another server may tell it otherwise")
	}
}

// A full disk takes short events and refuses long ones, so that it makes many gaps: all
// of them stand for what came while it was full, also when they are told later.
func TestGapsOfAFullDisk(t *testing.T) {
	filled := func(later time.Duration) []chaos.Record {
		h := append(good(), chaos.Record{At: 70 * ms, Kind: chaos.DiskFull}, chaos.Record{At: 80 * ms, Kind: chaos.DiskFree},
			chaos.Record{At: later, Kind: chaos.Subscribed, Agent: "prey", Sub: 4, Seq: 10})
		for seq := uint64(11); seq < 17; seq += 2 {
			h = append(h, chaos.Record{At: later + 1*ms, Kind: chaos.Seen, Agent: "prey", Sub: 4, Seq: seq, Type: "agent_state", Sum: seq},
				chaos.Record{At: later + 1*ms, Kind: chaos.Seen, Agent: "prey", Sub: 4, From: seq + 1, Seq: seq + 1, Type: "gap"})
		}
		return h
	}
	for _, later := range []time.Duration{90 * ms, time.Hour} {
		if r := judge(filled(later)); !r.Passed() {
			t.Errorf("told after %v: %v", later, r.Broken)
		}
		h := append(filled(later),
			chaos.Record{At: later + 2*time.Second, Kind: chaos.Seen, Agent: "prey", Sub: 4, Seq: 17, Type: "agent_state", Sum: 17},
			chaos.Record{At: later + 4*time.Second, Kind: chaos.Seen, Agent: "prey", Sub: 4, From: 18, Seq: 18, Type: "gap"})
		// The one death of the server is a reason for one more.
		if r := judge(append(h, chaos.Record{At: later + 5*time.Second, Kind: chaos.Seen, Agent: "prey", Sub: 4, From: 19, Seq: 19, Type: "gap"})); r.Passed() {
			t.Errorf("told after %v: what is lost long after the disk was full has no reason", later)
		}
	}
}

// What is told is bounded, and what is counted is all.
func TestManyViolations(t *testing.T) {
	h := good()
	for range 100 {
		h = append(h, chaos.Record{At: 70 * ms, Kind: chaos.Left, Text: "one more"})
	}
	r := judge(h)
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "VIOLATED 100 times") || !strings.Contains(text.String(), "and 80 more") {
		t.Errorf("got\n%s", text.String())
	}
}

// Events that were seen so long ago that they are not remembered are no second turns when all are asked for
// again: of agents that flood, each turn was said to have run twice.
func TestForgottenEventsSeenAgain(t *testing.T) {
	history := []chaos.Record{
		{Kind: chaos.ServerUp},
		{Kind: chaos.Subscribed, Agent: "prey", Sub: 1},
		{Kind: chaos.Sent, Agent: "prey", Request: "r1", Try: 1},
		{Kind: chaos.Seen, Agent: "prey", Sub: 1, Seq: 1, Type: "turn_start", Request: "r1", Sum: 1},
		{Kind: chaos.Seen, Agent: "prey", Sub: 1, Seq: 2, Type: "turn_end", Request: "r1", Outcome: "completed", Sum: 2},
		{Kind: chaos.Answered, Agent: "prey", Request: "r1", Try: 1, Outcome: "completed"},
	}
	for seq := range uint64(chaos.MaxRemembered) {
		history = append(history, chaos.Record{Kind: chaos.Seen, Agent: "prey", Sub: 1, Seq: seq + 3, Type: "message_update", Sum: 3})
	}
	history = append(history, chaos.Record{Kind: chaos.Subscribed, Agent: "prey", Sub: 2})
	history = append(history, history[3:5]...)
	for i := range history[len(history)-2:] {
		history[len(history)-1-i].Sub = 2
	}
	if report := judge(history); report.Counts[chaos.OneOutcome] > 0 || report.Counts[chaos.Numbered] > 0 {
		t.Errorf("broken: %q", report.Broken)
	}
}
