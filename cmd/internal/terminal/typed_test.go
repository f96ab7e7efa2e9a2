package terminal

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
)

// drawnTalk is a talk to the agent a, at a terminal.
func drawnTalk(t *testing.T) *model {
	t.Helper()
	talk := newTalk(t.Context(), new(client.Client), Options{}, func(any) {})
	talk.agent = "a"
	m := newModel(talk, openHistory(t.TempDir()), nil)
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	return m
}

// asks has a request come.
func (m *model) asks(agent, id string) {
	w := wants{agent: agent, request: protocol.PermissionRequest{
		RequestID: id, ToolName: "shell", Summary: "run " + id, Decisions: []protocol.Decision{protocol.AllowOnce, protocol.Deny},
	}}
	m.Update(w)
	m.Update(ours{w})
}

func (m *model) press(keys string) {
	for _, k := range keys {
		m.Update(tea.KeyPressMsg{Code: k, Text: string(k)})
	}
	m.release()
}

// pause has nothing typed for a while.
func (m *model) pause() { m.Update(chosen(m.typed)) }

// The way to go on after the end of the server names the server that is meant.
func TestTheEndOfTheServer(t *testing.T) {
	m := drawnTalk(t)
	m.t.o.Program = "nexus --home 'a b'"
	m.Update(parted{agent: "a", err: client.ErrNoServer})
	if said := ansi.Strip(strings.Join(m.lines, " ")); !strings.Contains(said, "the server has ended: nexus --home 'a b' --resume starts one") {
		t.Errorf("said: %q", said)
	}
}

// The lines that wait for a command are bounded, and the one that there is no room for is named.
func TestLinesBehindACommandAreBounded(t *testing.T) {
	m := drawnTalk(t)
	m.t.under = 1 // a command is under way
	for range maxBehind {
		if lines, more := m.t.submit("x", false); len(lines) > 0 || more != nil {
			t.Fatalf("a line that waits: %q", lines)
		}
	}
	lines, more := m.t.submit("one too many", false)
	if said := ansi.Strip(strings.Join(lines, " ")); more != nil || !strings.Contains(said, "too many lines wait for a command: not taken: one too many") {
		t.Errorf("said: %q", said)
	}
}

// Text whose keys come together is taken and drawn once, behind the key that it follows and before the one that
// comes next; each character costs the length of all of them otherwise.
func TestKeysThatComeTogether(t *testing.T) {
	m := drawnTalk(t)
	m.t.queued = []message{{agent: "a", id: "0", known: make(chan error)}} // so that nothing is sent from here
	typed := func(text string) {
		for _, k := range text {
			m.Update(tea.KeyPressMsg{Code: k, Text: string(k)})
		}
	}
	typed("e")
	before := m.View().Content
	typed("cho it")
	if now := m.View().Content; m.input.Value() != "e" || now != before {
		t.Errorf("before the pause is over the input is %q, drawn as\n%s", m.input.Value(), now)
	}
	m.Update(gathered{})
	if got := m.input.Value(); !strings.HasPrefix(got, "echo it") || !strings.Contains(m.View().Content, "echo it") {
		t.Errorf("after it the input is %q, drawn as\n%s", got, m.View().Content)
	}
	m.Update(tea.KeyPressMsg{Code: 'u', Mod: tea.ModCtrl})
	typed("echo one")
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	typed("echo two")
	m.Update(tea.KeyPressMsg{Code: tea.KeyBackspace})
	typed("x")
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	if q := m.t.queued; len(q) != 3 || q[1].text != "echo one" || q[2].text != "echo twx" {
		t.Errorf("queued: %+v", q)
	}
	m.Update(gathered{})
	m.Update(gathered{})
	if m.Update(gathered{}); m.burst.gathering {
		t.Error("a pause follows one in which nothing came")
	}
}

// What was about to be typed when a request came is no answer to it: it goes into the line. A key is one after
// a pause, for the request that was shown in it.
func TestKeysTypedAheadAnswerNothing(t *testing.T) {
	m := drawnTalk(t)
	m.asks("a", "1")
	first := m.pauses
	m.press("yes")
	if len(m.t.requests) != 1 || m.input.Value() != "yes" {
		t.Fatalf("typed ahead: %d requests wait, the line is %q", len(m.t.requests), m.input.Value())
	}
	if m.Update(paused(first)); m.offered {
		t.Error("a pause that keys have ended counts")
	}
	m.Update(paused(m.pauses))
	m.press("y")
	m.pause()
	if shown := m.View().Content; len(m.t.requests) != 1 || !strings.Contains(shown, "with nothing typed (Ctrl-C):") || !strings.Contains(shown, "y once, n no") {
		t.Errorf("behind a line: %d requests wait at\n%s", len(m.t.requests), shown)
	}
	m.input.Reset()
	m.asks("a", "2")
	m.press("y")
	m.pause()
	if got := waitingFor(m.t.requests); got != "a 2" || m.offered {
		t.Errorf("after an answer %q waits, and a key answers it: %v", got, m.offered)
	}
	m.press("y")
	m.pause()
	if len(m.t.requests) != 1 || m.input.Value() != "y" {
		t.Error("the second y of two answers the next request")
	}
}

// Text that only begins with a key that answers is no answer, however slowly it is typed; the key alone is one by Enter, or after a pause.
func TestTextThatBeginsWithAnAnswer(t *testing.T) {
	m := drawnTalk(t)
	m.asks("a", "1")
	m.Update(paused(m.pauses))
	for _, text := range []string{"stop, that is wrong", "yes please", "no", "remove it"} {
		for _, k := range text {
			before := chosen(m.typed)
			m.press(string(k))
			m.Update(before) // the pause behind the key before
		}
		m.pause()
		if len(m.t.requests) != 1 || m.input.Value() != text || m.t.question != nil {
			t.Fatalf("%q: %d requests wait, the line is %q, the question %+v", text, len(m.t.requests), m.input.Value(), m.t.question)
		}
		m.input.Reset()
	}
	m.press("y")
	if shown := m.View().Content; len(m.t.requests) != 1 || strings.Contains(shown, "with nothing typed") {
		t.Errorf("at once: %d requests wait at\n%s", len(m.t.requests), shown)
	}
	m.press("x")
	m.Update(tea.KeyPressMsg{Code: tea.KeyBackspace})
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	if len(m.t.requests) != 0 || len(m.t.queued) != 0 || m.input.Value() != "" {
		t.Errorf("by Enter: %d requests wait, the line is %q, queued is %+v", len(m.t.requests), m.input.Value(), m.t.queued)
	}
	m.asks("a", "2")
	m.Update(paused(m.pauses))
	m.press("n")
	m.Update(settled{"a", "2"})
	m.asks("a", "3")
	m.Update(paused(m.pauses))
	if m.pause(); len(m.t.requests) != 1 || m.input.Value() != "n" {
		t.Error("a key for one request answers another")
	}
}

// A request that is answered elsewhere takes with it the pause before it, and the question for a reason;
// the one behind it is not answered in its place, nor one of another agent that has its id.
func TestRequestsAnsweredElsewhere(t *testing.T) {
	m := drawnTalk(t)
	for _, agent := range []string{"a", "b"} {
		m.asks(agent, "1")
	}
	m.Update(paused(m.pauses))
	m.Update(settled{"a", "1"})
	m.press("y")
	m.pause()
	if got := waitingFor(m.t.requests); got != "b 1" {
		t.Fatalf("%q waits", got)
	}
	m.input.Reset()
	m.Update(paused(m.pauses))
	m.press("r")
	m.pause()
	if m.t.question == nil {
		t.Fatal("no reason is asked for")
	}
	m.Update(settled{"b", "1"})
	if m.t.question != nil || len(m.t.requests) != 0 || m.offered {
		t.Errorf("afterwards: question %+v, %d requests", m.t.question, len(m.t.requests))
	}
	m.Update(paused(m.pauses))
	m.press("y")
	if m.input.Value() != "y" {
		t.Errorf("without a request, y is %q", m.input.Value())
	}
}

// Who may allow something for the session sees what that would cover, before an answer is taken.
func TestARequestShowsWhatIsForTheSession(t *testing.T) {
	m := drawnTalk(t)
	w := wants{agent: "a", request: protocol.PermissionRequest{
		RequestID: "1", ToolName: "read_file", Input: []byte(`{"path":"/w/a"}`), Reason: "it reads", ForSession: "read_file: all in /w and below",
		Decisions: []protocol.Decision{protocol.AllowOnce, protocol.AllowSession, protocol.Deny},
	}}
	m.Update(w)
	m.Update(ours{w})
	if shown := ansi.Strip(strings.Join(m.offering(), "\n")); !strings.Contains(shown, "for the session: read_file: all in /w and below\n") {
		t.Errorf("shown is %q", shown)
	}
}

// A request is asked about once, however often it is told, and not at all if it ends before it is known whose
// it is.
func TestRequestsToldTwice(t *testing.T) {
	m := drawnTalk(t)
	m.asks("a", "1")
	m.asks("a", "1")
	w := wants{agent: "a", request: protocol.PermissionRequest{RequestID: "2"}}
	m.Update(w)
	m.Update(settled{"a", "2"})
	m.Update(ours{w})
	if got := waitingFor(m.t.requests); len(m.t.requests) != 1 || got != "a 1" || len(m.t.waiting) != 0 {
		t.Errorf("%d requests are asked about, first %q; %d wait besides", len(m.t.requests), got, len(m.t.waiting))
	}
}

// A server that has ended is asked nothing at the end of the talk, and what it did not get is said.
func TestTheEndAfterThatOfTheServer(t *testing.T) {
	m := drawnTalk(t) // whose client can ask nothing
	m.t.queued = []message{{agent: "a", id: "0", text: "sent", known: make(chan error)}, {agent: "a", id: "1", text: "waits"}}
	m.press("half ty")
	m.Update(parted{"a", client.ErrNoServer})
	m.Update(tea.KeyPressMsg{Code: 'p', Text: "p"})
	m.keep()
	if lines := undelivered(m.t); !slices.Equal(lines, []string{"perhaps not sent: sent", "not sent: waits", "not sent: half typ"}) {
		t.Errorf("it says %q", lines)
	}
	if lines := m.t.finish(); lines != nil {
		t.Errorf("it says %q", lines)
	}
}

// A message that comes to nothing is named once, with what is known of it.
func TestMessagesThatComeToNothing(t *testing.T) {
	refused := &client.RPCError{Message: "too many wait"}
	unreached := &client.RPCError{Message: "is not reached", Data: jsonrpc.ErrorData{Type: string(api.KindNodeUnreachable)}}
	for want, s := range map[string]sent{
		"! not sent: hello: too many wait":          {err: refused},
		"! perhaps not sent: hello: is not reached": {err: unreached},
		"! perhaps not sent: hello: it broke":       {err: &client.ConnError{Err: errors.New("it broke")}},
		"! hello: it broke":                         {taken: true, err: &client.ConnError{Err: errors.New("it broke")}},
		"· cancelled: hello":                        {taken: true, cancelled: true},
		"":                                          {taken: true},
	} {
		m := drawnTalk(t)
		s.agent, s.id = "a", "1"
		m.t.queued = []message{{agent: "a", id: "1", text: "hello", known: make(chan error)}}
		if lines, _ := m.t.handle(unbegun(s)); ansi.Strip(strings.Join(lines, "\n")) != want || len(m.t.queued) != 0 {
			t.Errorf("%+v: it says %q, and %d wait", s, lines, len(m.t.queued))
		}
		if lines, _ := m.t.handle(unbegun(s)); lines != nil {
			t.Errorf("%+v: of one that waits no more it says %q", s, lines)
		}
	}
}

// The end of a message of ours without a turn is told once, whether the answer or the event comes first.
func TestTheEndOfAMessageIsToldOnce(t *testing.T) {
	crashed := &client.RPCError{Message: "the server ended"}
	for _, answerFirst := range []bool{true, false} {
		m := drawnTalk(t)
		m.t.queued, m.t.own["1"] = []message{{agent: "a", id: "1", text: "hello", known: make(chan error)}}, "hello"
		answer := func() []string {
			lines, _ := m.t.handle(unbegun{agent: "a", id: "1", taken: true, err: crashed})
			return lines
		}
		event := func() []string {
			lines, _ := m.t.handle(happened{"a", protocol.TurnEnd{TurnID: "1", Outcome: "crashed", Error: "the server ended"}, time.Time{}})
			return lines
		}
		both := []func() []string{answer, event}
		if !answerFirst {
			slices.Reverse(both)
		}
		told := ansi.Strip(strings.Join(append(both[0](), both[1]()...), "\n"))
		if told != "! hello: the server ended" {
			t.Errorf("answer first: %t: it says %q", answerFirst, told)
		}
	}
}

// At the end of a talk the server has a while to take what was just sent, once for all messages; what is known counts
// however long another message was waited for.
func TestTheEndWithMessagesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := drawnTalk(t)
		sent := func(agent string, known ...error) message {
			told := make(chan error, 2)
			for _, err := range known {
				told <- err
			}
			return message{agent: agent, text: agent, known: told}
		}
		told := make(chan error, 2)
		late := message{agent: "late", text: "late", known: told}
		time.AfterFunc(takenPatience/2, func() { told <- nil })
		m.t.queued = []message{
			late,
			sent("taken", nil),
			sent("refused", &client.RPCError{Message: "too many wait"}),
			sent("stuck"),
			sent("stuck too"),
			sent("taken, too", nil),
			sent("cancelled", nil, &client.RPCError{Message: "it ends"}),
			{agent: "taken", text: "waits"},
		}
		began := time.Now()
		want := []string{
			"not sent: refused: too many wait", "perhaps not sent: stuck: the server does not answer", "perhaps not sent: stuck too: the server does not answer",
			"cancelled: it ends", "not sent: waits",
		}
		if lines := undelivered(m.t); !slices.Equal(lines, want) || time.Since(began) != takenPatience {
			t.Errorf("after %v it says %q", time.Since(began), lines)
		}
	})
}

// Ctrl-C ends a marked text whose end does not come, and is Ctrl-C otherwise.
func TestAPasteWithoutEnd(t *testing.T) {
	keys, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	defer typed.Close()
	k := NewKeyboard(keys)
	g := &guard{model: drawnTalk(t), keyboard: k, faulted: make(chan struct{})}
	for _, step := range []struct {
		msg         tea.Msg
		typed, read string
	}{
		{nil, "\x03", "\x03"},
		{tea.PasteStartMsg{}, "a\x03", "a\x03"},
		{nil, "\x03", "\x1b[201~"},
		{tea.PasteEndMsg{}, "\x03", "\x03"},
	} {
		g.Update(step.msg)
		if _, err := typed.WriteString(step.typed); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 64)
		if n, err := k.Read(buffer); err != nil || string(buffer[:n]) != step.read {
			t.Errorf("after %T, %q is read as %q, %v", step.msg, step.typed, buffer[:n], err)
		}
	}
}

// The terminal is given to nobody before it has answered, or for a second.
func TestAnswersOfTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := answers{came: make(chan struct{})}
		waits := func(what string, want time.Duration) {
			t.Helper()
			began := time.Now()
			if a.wait(); time.Since(began) != want {
				t.Errorf("%s it waits for %v, want %v", what, time.Since(began), want)
			}
		}
		waits("unasked", 0)
		a.wrote([]byte("\x1b[?2026$p\x1b[?2027$p"))
		waits("unanswered", answerPatience)
		waits("later", 0)
		a.wrote([]byte("\x1b[?2027$p"))
		go func() {
			<-time.After(300 * time.Millisecond)
			for _, piece := range []string{"\x1b[?2026;2$y\x1b[?20", "", "27;0$y"} {
				a.read([]byte(piece))
			}
		}()
		waits("answered", 300*time.Millisecond)
		waits("once it is answered", 0)
	})
}

// A message that was typed while a turn ran into its bound is no answer to whether it is to go on.
func TestMessagesTypedAheadOfAQuestion(t *testing.T) {
	m := drawnTalk(t)
	m.t.queued = []message{{agent: "a", id: "0", known: make(chan error)}} // so that nothing is sent from here
	m.press("what about b?")
	m.Update(asks{text: "go on? y/n", passes: true})
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	if q := m.t.queued; m.t.question != nil || len(q) != 2 || q[1].text != "what about b?" {
		t.Errorf("question %+v, queued %+v", m.t.question, q)
	}
}

// Another answer than y and n leaves the question, of which there is no copy.
func TestOtherAnswers(t *testing.T) {
	m := drawnTalk(t)
	m.Update(asks{text: "create it? y/n", yes: func() any { return nil }})
	if lines, more := m.t.submit("perhaps", false); len(lines) != 1 || !strings.Contains(lines[0], "the answer is y or n") || more != nil {
		t.Errorf("it says %q", lines)
	}
	if shown := m.View().Content; strings.Count(shown, "create it? y/n") != 1 {
		t.Errorf("the question:\n%s", shown)
	}
	m.t.o.Plain = true
	if lines, _ := m.t.submit("maybe", false); len(lines) != 2 || lines[1] != "create it? y/n" {
		t.Errorf("in lines it says %q", lines)
	}
	if _, more := m.t.submit("y", false); more == nil || m.t.question != nil {
		t.Error("y is no answer")
	}
	for _, q := range []asks{{text: "create it? y/n"}, {text: "go on? y/n", passes: true}, {text: "save it as:", answer: func(string) work { return nil }}} {
		m.t.over = false
		m.Update(q)
		if m.t.submit(" /quit ", false); !m.t.over {
			t.Errorf("/quit does not leave at %s", q.text)
		}
	}
}

// What an agent does while its person whispers to another one has the times at which it was done.
func TestTheTimeOfCallsBesideAWhisper(t *testing.T) {
	m := drawnTalk(t)
	beginWhisper(m.t, whispers{agent: "b"})
	began := time.Now()
	step := func(e protocol.AssistantEvent) protocol.Event { return protocol.MessageUpdate{Event: e} }
	for _, one := range []happened{
		{"a", protocol.TurnStart{TurnID: "1", Attempt: 2}, began},
		{"a", step(protocol.ToolcallStart{ToolID: "c", ToolName: "shell"}), began},
		{"a", step(protocol.ToolcallResult{ToolID: "c"}), began.Add(3 * time.Second)},
		{"a", step(protocol.ToolcallStart{ToolID: "d", ToolName: "shell"}), time.Time{}},
		{"a", step(protocol.ToolcallResult{ToolID: "d"}), began.Add(4 * time.Second)},
	} {
		m.Update(one)
	}
	lines, _ := whisperOver(m.t, nil)
	if said := ansi.Strip(strings.Join(lines, "\n")); !strings.Contains(said, "● shell  (3.0 s)") || strings.Count(said, " s)") != 1 || strings.Count(said, "● shell") != 2 {
		t.Errorf("it says\n%s", said)
	}
}

// A key held as a part of a text chooses nothing in the lobby, nor one behind which something was typed.
func TestKeysInTheLobby(t *testing.T) {
	m := drawnTalk(t)
	m.t.agent = ""
	m.Update(lobbyOf(m.t, nil, nil, time.Now()))
	m.press("2")
	first := chosen(m.typed)
	m.press(" files")
	if m.Update(first); m.t.question == nil || m.input.Value() != "2 files" {
		t.Fatalf("the line is %q, the question %+v", m.input.Value(), m.t.question)
	}
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	if shown := m.View().Content; len(m.t.queued) != 1 || !strings.Contains(shown, "queued: 2 files") || m.t.question == nil {
		t.Fatalf("queued %+v, drawn as\n%s", m.t.queued, shown)
	}
	m.press("2")
	if m.Update(chosen(m.typed)); m.t.question != nil || m.input.Value() != "" {
		t.Errorf("after a pause the line is %q, the question %+v", m.input.Value(), m.t.question)
	}
}

// A question that is left without an answer, by whoever talks to nobody, leads back to the lobby; /help is answered there.
func TestBackToTheLobby(t *testing.T) {
	m := drawnTalk(t)
	m.t.agent = ""
	list := []api.SavedSession{{Name: "alice", MessageCount: 1}}
	m.Update(chooseOf(m.t, list, time.Now()))
	if _, do := m.Update(tea.KeyPressMsg{Code: tea.KeyEscape}); m.t.question != nil || do == nil || m.working != 1 {
		t.Errorf("after Esc: question %+v, %d works", m.t.question, m.working)
	}
	m.working = 0
	m.Update(asks{text: "create it? y/n"})
	if m.input.SetValue("n"); m.enter(false) == nil || m.working != 1 {
		t.Errorf("after n: %d works", m.working)
	}
	m.Update(lobbyOf(m.t, nil, list, time.Now()))
	if lines, more := m.t.submit("/help quit", false); more != nil || !slices.Equal(lines, []string{"/quit", "Leave"}) || len(m.t.queued) != 0 || m.t.question == nil {
		t.Errorf("it says %q, queued %+v, question %+v", lines, m.t.queued, m.t.question)
	}
	m.t.o.Plain = true
	if lines, _ := m.t.submit("/help", false); len(lines) < 20 || lines[len(lines)-1] != m.t.question.text {
		t.Errorf("in lines it says %q", lines)
	}
}

// What is typed behind the end is bounded, and what there is no room for is counted.
func TestMuchBehindTheEnd(t *testing.T) {
	m := drawnTalk(t)
	m.t.over = true
	m.Update(tea.PasteMsg{Content: strings.Repeat("é", maxRest/2-1) + "\r"})
	m.press("ab漢")
	m.keep()
	if q := m.t.queued; len(q) != 1 || len(q[0].text) < maxRest-2 || !strings.HasSuffix(q[0].text, "é\na… (2 more characters)") {
		t.Errorf("kept %d, ending with %q", len(q), q[0].text[max(0, len(q[0].text)-40):])
	}
}
