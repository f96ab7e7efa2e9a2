package terminal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/fixtures"
	"nexus.internal/protocol"
)

// turn are the events of a turn that has all that is shown of one.
func turn() []protocol.Event {
	step := func(e protocol.AssistantEvent) protocol.Event { return protocol.MessageUpdate{Event: e} }
	return []protocol.Event{
		protocol.TurnStart{TurnID: "1"},
		step(protocol.ThinkingDelta{Delta: "The name is probably in the file, so it is read first, and then the file is changed.\n"}),
		step(protocol.TextDelta{Delta: "# A heading\n\nI look at **the file** `a.go`, which has a name that is longer than"}),
		step(protocol.TextDelta{Delta: " it needs to be, and then at others.\n\n```go\nfunc main() {\n\n}\n```\n\nAnd then:"}),
		step(protocol.ToolcallStart{ToolID: "a", ToolName: "edit_file"}),
		step(protocol.ToolcallInput{ToolID: "a", Input: []byte(`{"path":"a.go","old_text":"var long = 1","new_text":"var l = 1"}`)}),
		step(protocol.ToolcallResult{ToolID: "a", Result: "edited a.go"}),
		step(protocol.ToolcallStart{ToolID: "b", ToolName: "shell"}),
		step(protocol.ToolcallInput{ToolID: "b", Input: []byte(`{"command":"go test ./... | tee a-very-long-name-of-a-file-that-does-not-fit-into-the-line-of-a-terminal.txt"}`)}),
		step(protocol.ToolcallOutputDelta{ToolID: "b", Delta: "running\n"}),
		step(protocol.ToolcallResult{ToolID: "b", Result: strings.Repeat("FAIL\tx\n", 9) + "[exit status 1]", IsError: true}),
		step(protocol.Retry{Reason: "503", Attempt: 2, MaxAttempts: 5, WaitMS: 1500}),
		step(protocol.Fallback{Model: "other/model", Reason: "down"}),
		step(protocol.CompactionStart{}),
		step(protocol.CompactionEnd{Compacted: true, TokensBefore: 9000, TokensAfter: 800}),
		protocol.SubagentStart{AgentName: "helper", TaskPreview: "count"},
		protocol.SubagentDone{AgentName: "helper", ResultPreview: "3", DurationSecs: 1.25},
		step(protocol.TextDelta{Delta: "Done.\n- one\n- two: 日本語のテキスト"}),
		protocol.AgentEnd{StopReason: protocol.StopMaxTokens},
		protocol.TurnEnd{TurnID: "1", Outcome: "completed"},
		protocol.AgentState{State: "backoff", Reason: "signal: killed"},
		protocol.TurnStart{TurnID: "2"},
		protocol.TurnEnd{TurnID: "2", Outcome: "crashed", Error: "the process ended"},
		protocol.Gap{From: 3, To: 9},
	}
}

// What a turn looks like at 80 and 120 columns, and by lines.
func TestScreens(t *testing.T) {
	for name, l := range map[string]look{"80": {width: 80}, "120": {width: 120}, "40": {width: 40}, "plain": {plain: true}, "verbose": {width: 80, verbose: true}} {
		t.Run(name, func(t *testing.T) {
			clock := time.Time{}
			shown := transcript{look: l, now: func() time.Time { clock = clock.Add(time.Second); return clock }}
			var out []string
			for _, event := range turn() {
				shown.at = shown.now()
				out = append(out, shown.apply(event)...)
				if pending := shown.pending(1000); len(pending) > 0 {
					out = append(out, "~"+strings.Join(pending, "\n~"))
				}
			}
			out = append(append(out, "unfolded:"), append(shown.unfold(), shown.unfold()...)...)
			text := ansi.Strip(strings.Join(out, "\n")) + "\n"
			for line := range strings.SplitSeq(text, "\n") {
				if width := ansi.StringWidth(strings.TrimPrefix(line, "~")); l.width > 0 && width > l.width {
					t.Errorf("%d columns: %q", width, line)
				}
			}
			fixtures.Golden(t, "terminal/turn-"+name+".txt", []byte(text))
		})
	}
}

// Text is shown as its paragraphs are complete, and code as its block is.
func TestParagraphs(t *testing.T) {
	var p paragraph
	var done []string
	for _, piece := range []string{"a", "b\n", "\nc\n```\nd\n\n", "e\n", "```\n\nf"} {
		if text := p.add(piece); text != "" {
			done = append(done, text)
		}
	}
	if diff := cmp.Diff([]string{"ab\n\n", "c\n```\nd\n\ne\n```\n\n"}, done); diff != "" || p.take() != "f" {
		t.Error(diff)
	}
	if text := p.add(strings.Repeat("x", maxPending+1)); len(text) != maxPending+1 {
		t.Errorf("%d bytes of a line without an end are shown", len(text))
	}
}

// What was typed is there in the next run, and is found.
func TestHistory(t *testing.T) {
	home := t.TempDir()
	h := openHistory(home)
	for _, line := range []string{"one", "two\nlines", "two\nlines", " ", "three"} {
		h.add(line)
	}
	h = openHistory(home)
	if diff := cmp.Diff([]string{"one", "two\nlines", "three"}, h.lines); diff != "" {
		t.Fatal(diff)
	}
	for _, s := range []struct {
		by   int
		want string
	}{{-1, "three"}, {-1, "two\nlines"}, {1, "three"}, {1, "typed"}} {
		if got, ok := h.step(s.by, "typed"); !ok || got != s.want {
			t.Errorf("%+d: %q, want %q", s.by, got, s.want)
		}
	}
	if _, ok := h.step(1, ""); ok {
		t.Error("there is a line after the last")
	}
	if at, ok := h.find("o", 3); !ok || h.lines[at] != "two\nlines" {
		t.Errorf("found %d", at)
	}
	if at, ok := h.find("o", at(h, "two\nlines")); !ok || h.lines[at] != "one" {
		t.Errorf("found %d", at)
	}
}

func at(h *history, line string) int {
	for i, l := range h.lines {
		if l == line {
			return i
		}
	}
	return -1
}

// The files that a message mentions go with it; other words that begin with @ do not.
func TestMentions(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, _, err := attachments(dir, "look at @a.txt, ask @bob and @"+filepath.Join(dir, "a.txt"))
	if err != nil || got == nil || len(*got) != 2 || *(*got)[0].Text != "content" {
		t.Errorf("%+v, %v", got, err)
	}
	if got := files(dir, "@", "@a"); len(got) != 1 || got[0] != "@a.txt" {
		t.Errorf("completed to %q", got)
	}
}

// A file that a request has no room for goes by its path.
func TestLargeMentions(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"small.png": 500_000, "large.png": 700_000, "other.png": 300_000} {
		if err := os.WriteFile(filepath.Join(dir, name), append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, size)...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, _, err := attachments(dir, "@small.png @large.png @other.png")
	if err != nil || got == nil || len(*got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	var paths []string
	for _, a := range *got {
		paths = append(paths, a.Path)
	}
	if diff := cmp.Diff([]string{"", filepath.Join(dir, "large.png"), filepath.Join(dir, "other.png")}, paths); diff != "" {
		t.Error(diff)
	}
}

// A message that waited and is cancelled ends nothing of the turn that runs.
func TestTheEndOfAnotherTurn(t *testing.T) {
	step := func(e protocol.AssistantEvent) protocol.Event { return protocol.MessageUpdate{Event: e} }
	shown := transcript{look: look{plain: true, verbose: true}, now: time.Now}
	for _, one := range []struct {
		event protocol.Event
		turn  string
		want  string
	}{
		{protocol.TurnStart{TurnID: "1"}, "1", ""},
		{step(protocol.ToolcallStart{ToolID: "a", ToolName: "sleep"}), "1", ""},
		{protocol.TurnEnd{TurnID: "2", Outcome: "cancelled"}, "1", ""},
		{step(protocol.ToolcallResult{ToolID: "a", Result: "slept"}), "1", "tool sleep  (0.0 s)\n  slept"},
		{protocol.TurnEnd{TurnID: "1", Outcome: "cancelled"}, "", "· 0.0 s\n· cancelled"},
	} {
		shown.at = time.Now()
		if got := strings.Join(shown.apply(one.event), "\n"); got != one.want || shown.turn != one.turn {
			t.Errorf("%+v shows %q in turn %q, want %q in %q", one.event, got, shown.turn, one.want, one.turn)
		}
	}
}
