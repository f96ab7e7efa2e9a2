package terminal

import (
	"slices"
	"strings"

	"nexus.internal/cmd/internal/cli"
)

// typedLine is a line that was entered while a command was under way: it waits for the answer, as it is meant for what the command makes of
// the talk, such as for another agent.
type typedLine struct {
	text  string
	steer bool
}

// maxBehind is how many lines wait at most.
const maxBehind = 256

// carriedOut has what came of work for which lines wait.
type carriedOut struct{ msg any }

// during has the lines that are entered wait until w has come to its end.
func during(t *talk, w work) work {
	if w == nil {
		return nil
	}
	t.under++
	return func() any { return carriedOut{w()} }
}

// commandOf is the name of the command that a line is, with its slash; "" if it is a message.
func commandOf(text string) string {
	if !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") {
		return ""
	}
	name, _ := firstWord(strings.TrimPrefix(text, "/"))
	return "/" + name
}

// atOnce are the commands that are carried out while another one is under way: they end it or what waits for it, answer an approval, or
// are about what is shown alone.
var atOnce = []string{"/", "/allow", "/cancel", "/clear", "/deny", "/help", "/quit", "/unfold"}

// waitedFor reports whether lines wait for the answer of a command. For those of atOnce none does, nor for one that waits for the turns of
// other agents.
func waitedFor(command string) bool {
	return !slices.Contains(atOnce, command) && command != "/send" && command != "/plan"
}

// waits reports whether a line that is entered now waits for a command.
func waits(t *talk, text string) bool {
	return (t.under > 0 || len(t.behind) > 0) && !slices.Contains(atOnce, commandOf(text))
}

// onward carries out the line that has waited longest; false if none is to be carried out yet.
func onward(t *talk) (lines []string, more work, ok bool) {
	if len(t.behind) == 0 || t.under > 0 || t.over {
		return nil, nil, false
	}
	line, q := t.behind[0], t.question
	switch {
	case q == nil:
	case q.passes: // it was not there to be answered as the line was entered
		t.question, q = nil, nil
	case !q.fits(line.text):
		return nil, nil, false
	}
	t.behind = t.behind[1:]
	if q != nil {
		lines, more = t.answered(q, line.text)
	} else {
		lines, more = carryOut(t, line.text, line.steer)
	}
	return lines, more, true
}

// fits reports whether a line that was entered before a question was asked can be its answer, as the command before it has led to the question.
func (q *question) fits(line string) bool {
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes", "n", "no":
		return q.about == ""
	}
	return q.answer != nil && q.about == ""
}

// takeBack drops the lines that wait for a command, as they build on each other, and says so.
func takeBack(t *talk) (lines said) {
	for _, line := range t.behind {
		lines = append(lines, t.look().note(cli.Harmless("cancelled: "+line.text, true)))
	}
	t.behind = nil
	return lines
}

// strandTyped takes the lines that wait for a command, at the end of the talk, for messages that were not sent.
func strandTyped(t *talk) {
	for _, line := range t.behind {
		unsent(t, line.text)
	}
	t.behind = nil
}

// waitingTexts are the messages that wait for the agent that is talked to, and the lines that wait for a command.
func waitingTexts(t *talk) (texts []string) {
	for _, m := range queuedFor(t) {
		texts = append(texts, m.text)
	}
	for _, line := range t.behind {
		texts = append(texts, line.text)
	}
	return texts
}
