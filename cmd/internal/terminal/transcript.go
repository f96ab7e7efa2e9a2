package terminal

import (
	"fmt"
	"strings"
	"time"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

const (
	// shownResult and shownOutput are how many lines of a tool's result, and of what it has put
	// out so far, are shown.
	shownResult = 5
	shownOutput = 5
	// maxPending bounds the text that is held back for the end of its paragraph, in bytes.
	maxPending = 16 << 10
	// maxOutput bounds what is kept of the output of a running call, in bytes.
	maxOutput = 16 << 10
)

// clock is the time.
type clock func() time.Time

// transcript makes of the events of an agent what is shown. It is pure: its time is that of its
// clock. The zero value has no width, and breaks no lines.
type transcript struct {
	look  look
	now   clock
	phase string // what the agent does; "" for nothing
	turn  string // the id of the running turn; "" for none

	thinking paragraph
	text     paragraph
	calls    []*call
	at       time.Time // when what comes happened; zero if nobody knows
	spoke    bool      // the running turn has shown text
	stop     protocol.StopReason
	began    time.Time           // of the running turn
	usage    *protocol.TurnUsage // nil before the agent says it, which one that crashes does not
	crash    string              // why the last turn crashed, which was told; "" if it did not
	folded   []folded            // the last of them
}

// maxFolded is how many calls are kept that were not shown whole.
const maxFolded = 32

// folded is a call of which more can be shown.
type folded struct {
	call   *call
	took   time.Duration
	result protocol.ToolcallResult
}

// unfold shows the last folded call whole, and forgets it.
func (t *transcript) unfold() []string {
	last := len(t.folded) - 1
	if last < 0 {
		return []string{t.look.note("no call is folded")}
	}
	f := t.folded[last]
	t.folded = t.folded[:last]
	return t.look.whole(f.call, f.took, f.result)
}

// call is a tool call that runs.
type call struct {
	id, name string
	input    string
	raw      []byte
	output   string
	began    time.Time
}

// paragraph is text that comes in pieces. Its whole paragraphs are shown as they are complete.
type paragraph struct{ rest string }

// add takes a piece, and returns the paragraphs that are complete with it.
func (p *paragraph) add(piece string) string {
	p.rest += piece
	end := 0
	fenced := false
	for at := 0; at < len(p.rest); {
		line, _, whole := strings.Cut(p.rest[at:], "\n")
		if !whole {
			break
		}
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		at += len(line) + 1
		if !fenced && strings.TrimSpace(line) == "" || len(p.rest) > maxPending {
			end = at
		}
	}
	if end == 0 && len(p.rest) > maxPending {
		end = len(p.rest)
	}
	done := p.rest[:end]
	p.rest = p.rest[end:]
	return done
}

// take returns what is left.
func (p *paragraph) take() string {
	rest := p.rest
	p.rest = ""
	return rest
}

// apply takes the next event, and returns lines that are finished.
func (t *transcript) apply(event protocol.Event) []string {
	switch e := event.(type) {
	case protocol.MessageUpdate:
		return t.step(e.Event)
	case protocol.TurnStart:
		t.turn, t.phase, t.spoke, t.stop = e.TurnID, "waiting", false, ""
		t.began, t.usage, t.crash = t.at, nil, ""
		if e.Attempt > 1 {
			return []string{t.look.note("the message is sent once more")}
		}
	case protocol.AgentEnd:
		t.stop, t.usage = e.StopReason, &e.Usage
	case protocol.TurnEnd:
		return t.end(e)
	case protocol.AgentState:
		return t.state(e)
	case protocol.Gap:
		return []string{t.look.note(fmt.Sprintf("events %d to %d are not kept any more, or a kill of the server left out their numbers", e.From, e.To))}
	case protocol.SubagentStart:
		return []string{t.look.note("→ " + cli.Harmless(e.AgentName+": "+e.TaskPreview, true))}
	case protocol.SubagentDone:
		return []string{t.look.note(fmt.Sprintf("← %s (%.1f s): %s", cli.Harmless(e.AgentName, true), e.DurationSecs, cli.Harmless(e.ResultPreview, true)))}
	}
	return nil
}

// step takes a step of the running turn.
func (t *transcript) step(event protocol.AssistantEvent) (out []string) {
	switch e := event.(type) {
	case protocol.TextDelta:
		out = t.endThinking()
		t.phase, t.spoke = "answering", true
		if whole := t.look.answer(t.text.add(e.Delta)); len(whole) > 0 {
			out = append(append(out, whole...), "") // what comes next is a paragraph of its own
		}
		return out
	case protocol.ThinkingDelta:
		t.phase = "thinking"
		return t.look.thought(t.thinking.add(e.Delta))
	case protocol.ToolcallStart:
		out = t.flush()
		t.calls = append(t.calls, &call{id: e.ToolID, name: e.ToolName, began: t.at})
		t.phase = "calling " + cli.Harmless(e.ToolName, true)
	case protocol.ToolcallInput:
		if c := t.callOf(e.ToolID); c != nil {
			c.raw, c.input = e.Input, inputOf(c.name, e.Input)
		}
	case protocol.ToolcallOutputDelta:
		if c := t.callOf(e.ToolID); c != nil {
			c.output += e.Delta
			c.output = c.output[max(0, len(c.output)-maxOutput):]
		}
	case protocol.ToolcallResult:
		return t.result(e)
	case protocol.Retry:
		return []string{t.look.note(fmt.Sprintf("the model's service failed (%s): try %d of %d in %v", cli.Harmless(e.Reason, true), e.Attempt, e.MaxAttempts, time.Duration(e.WaitMS)*time.Millisecond))}
	case protocol.Fallback:
		return []string{t.look.note("asking " + cli.Harmless(e.Model+" instead: "+e.Reason, true))}
	case protocol.CompactionStart:
		t.phase = "summarising"
	case protocol.CompactionEnd:
		t.phase = "waiting"
		if e.Compacted {
			return []string{t.look.note(fmt.Sprintf("older messages gave way to a summary: %d tokens instead of %d", e.TokensAfter, e.TokensBefore))}
		}
		return []string{t.look.note("no summary was made: " + cli.Harmless(e.Reason, true))}
	}
	return out
}

// since is how long something had been going on at a moment; negative if nobody knows.
func since(began, at time.Time) time.Duration {
	if began.IsZero() || at.IsZero() {
		return -1
	}
	return at.Sub(began)
}

func (t *transcript) callOf(id string) *call {
	for _, c := range t.calls {
		if c.id == id {
			return c
		}
	}
	return nil
}

// result ends a call.
func (t *transcript) result(e protocol.ToolcallResult) []string {
	c := t.callOf(e.ToolID)
	if c == nil { // it began before we looked
		c = &call{id: e.ToolID, name: "tool"}
	}
	for i, other := range t.calls {
		if other == c {
			t.calls = append(t.calls[:i:i], t.calls[i+1:]...)
		}
	}
	if t.phase = "waiting"; len(t.calls) > 0 {
		t.phase = "calling " + cli.Harmless(t.calls[0].name, true)
	}
	took := since(c.began, t.at)
	if t.look.verbose {
		return t.look.whole(c, took, e)
	}
	lines, more := t.look.called(c, took, e)
	if more {
		t.folded = append(t.folded[max(0, len(t.folded)+1-maxFolded):], folded{c, took, e})
	}
	return lines
}

// end ends the turn. The end of another one is that of a message that waited: the turn goes on.
func (t *transcript) end(e protocol.TurnEnd) []string {
	if t.turn != "" && e.TurnID != t.turn {
		return nil
	}
	out := t.flush()
	for _, c := range t.calls {
		out = append(out, t.look.note(cli.Harmless(c.name, true)+" did not come to an end"))
	}
	if took := t.took(); t.look.verbose && took != "" {
		out = append(out, t.look.note(took))
	}
	stop := t.stop
	t.turn, t.phase, t.calls, t.stop = "", "", nil, ""
	switch {
	case e.Outcome == "cancelled":
		return append(out, t.look.note("cancelled"))
	case e.Outcome != "completed":
		t.crash = e.Error
		return append(out, t.look.problem(cli.Harmless(e.Outcome+": "+e.Error, true)))
	case stop == protocol.StopMaxIterations:
		return append(out, t.look.note("halted at the limit of model calls"))
	case stop == protocol.StopMaxTokens:
		return append(out, t.look.note("the answer was cut off at the model's limit of tokens"))
	case stop == protocol.StopContentFilter:
		return append(out, t.look.note("the model's service refused or filtered the rest"))
	}
	return out
}

// took is what the turn took, as far as it is known.
func (t *transcript) took() string {
	var parts []string
	if took := since(t.began, t.at); took >= 0 {
		parts = append(parts, fmt.Sprintf("%.1f s", took.Seconds()))
	}
	u := t.usage
	if u == nil {
		return strings.Join(parts, "")
	}
	parts = append(parts, fmt.Sprintf("%d tokens in, %d out", u.InputTokens, u.OutputTokens))
	if u.CacheReadInputTokens > 0 {
		parts = append(parts, fmt.Sprintf("%d from the cache", u.CacheReadInputTokens))
	}
	if cost := protocol.Value(u.Cost); cost > 0 {
		parts = append(parts, fmt.Sprintf("$%.4f", cost))
	}
	return strings.Join(parts, ", ")
}

// state tells of an agent whose process is gone.
func (t *transcript) state(e protocol.AgentState) []string {
	switch e.State {
	case "backoff":
		if t.crash != "" && t.crash == e.Reason {
			return append(t.flush(), t.look.note("the agent's process is started again"))
		}
		return append(t.flush(), t.look.problem("the agent's process has crashed and is started again: "+cli.Harmless(e.Reason, true)))
	case "failed":
		return append(t.flush(), t.look.problem("the agent has failed: "+cli.Harmless(e.Reason, true)))
	}
	return nil
}

func (t *transcript) endThinking() []string { return t.look.thought(t.thinking.take()) }

// flush shows what was held back.
func (t *transcript) flush() []string {
	return append(t.endThinking(), t.look.answer(t.text.take())...)
}

// pending is what is held back and what runs, as lines that change.
func (t *transcript) pending(most int) []string {
	lines := append(t.look.thought(t.thinking.rest), t.look.answer(t.text.rest)...)
	for _, c := range t.calls {
		lines = append(lines, t.look.running(c, since(c.began, t.now()))...)
	}
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return lines
}
