package acpserve

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// maxPiece bounds a piece of text in one line, in bytes: JSON may write a byte as six.
const maxPiece = 128 << 10

// shownCall is a call that the editor shows.
type shownCall struct {
	tool  string
	input []byte
	diffs []callContent // what it changes

	output string    // the end of what it has put out
	told   time.Time // when that was told last

	head     string  // what came of the input of write_file, until its path is known
	foreseen bool    // it is
	replaced *string // what the file held then
}

const (
	// maxHead bounds the head of an input, and maxOutput the output of a call that runs, in bytes.
	maxHead   = 8 << 10
	maxOutput = 8 << 10
	// outputPause is how often such an output is told at most: each time all of it is.
	outputPause = 250 * time.Millisecond
)

// foresee takes a piece of the input of write_file. As soon as its path is known, the file is read: the
// call may have run before its whole input is told.
func (c *shownCall) foresee(piece, dir string) {
	if c.tool != "write_file" || c.foreseen || len(c.head) >= maxHead {
		return
	}
	c.head += piece
	if path := gjson.Get(c.head, "path"); path.Str != "" && path.Index+len(path.Raw) < len(c.head) { // it is whole
		c.head, c.foreseen = "", true
		c.replaced = held(absolute(path.Str, dir), dir)
	}
}

// hidden reports whether a tool is shown otherwise than as a call: the list of things to do is a plan.
func hidden(tool string) bool { return tool == "todo" }

// step tells of a step of the turn.
func (r *telling) step(event protocol.AssistantEvent) {
	switch e := event.(type) {
	case protocol.TextDelta:
		r.said += len(e.Delta)
		r.text("agent_message_chunk", e.Delta)
	case protocol.ThinkingDelta:
		r.text("agent_thought_chunk", e.Delta)
	case protocol.ToolcallStart:
		r.inText = false
		r.calls[e.ToolID] = &shownCall{tool: e.ToolName}
		if !hidden(e.ToolName) {
			r.update(callUpdate{Kind: "tool_call", ToolCallID: e.ToolID, Title: e.ToolName, ToolKind: kindOf(e.ToolName), Status: "pending"})
		}
	case protocol.ToolcallInputDelta:
		if c := r.calls[e.ToolID]; c != nil {
			c.foresee(e.Delta, r.dir)
		}
	case protocol.ToolcallInput:
		if c := r.calls[e.ToolID]; c != nil {
			c.input = e.Input
			c.diffs = diffsOf(c.tool, e.Input, r.dir, c.replaced)
			r.tellInput(e.ToolID, c)
		}
	case protocol.ToolcallOutputDelta:
		if c := r.calls[e.ToolID]; c != nil && !hidden(c.tool) {
			r.output(e.ToolID, c, e.Delta)
		}
	case protocol.ToolcallResult:
		r.result(e)
	case protocol.Retry:
		r.notice("The model's service failed and is asked again", fmt.Sprintf("%s: try %d of %d in %v", e.Reason, e.Attempt, e.MaxAttempts, time.Duration(e.WaitMS)*time.Millisecond))
	case protocol.Fallback:
		r.notice("Another model is asked instead", e.Model+": "+e.Reason)
	case protocol.CompactionStart:
		r.compactions++
		r.compaction("in_progress", "")
	case protocol.CompactionEnd:
		if e.Compacted {
			r.compaction("completed", "")
		} else {
			r.compaction("failed", e.Reason)
		}
	}
}

func (r *telling) update(update any) { r.s.peer.update(r.turn.of.id, update) }

// text tells a piece of a message, or more than one if it is long.
func (r *telling) text(kind, text string) {
	if !r.inText {
		r.inText = true
		r.message++
	}
	for text != "" {
		piece := textcut.Head(text, maxPiece)
		text = text[len(piece):]
		r.update(chunk{kind, textBlock(piece), r.turn.id + "-" + strconv.Itoa(r.message)})
	}
}

// tellInput tells what a call is about, and that it begins.
func (r *telling) tellInput(id string, c *shownCall) {
	if hidden(c.tool) {
		return
	}
	update := described(id, c.tool, c.input, r.dir)
	update.Kind, update.Status, update.Content = "tool_call_update", "in_progress", c.diffs
	r.update(update)
}

// output tells what a call that runs has put out.
func (r *telling) output(id string, c *shownCall, piece string) {
	c.output = textcut.Tail(c.output+piece, maxOutput)
	if time.Since(c.told) < outputPause {
		return
	}
	c.told = time.Now()
	r.update(callUpdate{Kind: "tool_call_update", ToolCallID: id, Status: "in_progress", Content: append(c.diffs[:len(c.diffs):len(c.diffs)], shown(c.output)...)})
}

// described is a call without what it puts out; dir is the agent's.
func described(id, tool string, input []byte, dir string) callUpdate {
	update := callUpdate{ToolCallID: id, Title: titleOf(tool, input), ToolKind: kindOf(tool), Locations: locationsOf(input, dir)}
	if len(input) <= maxShown {
		update.RawInput = input
	}
	return update
}

// result tells how a call ended.
func (r *telling) result(e protocol.ToolcallResult) {
	c := r.calls[e.ToolID]
	delete(r.calls, e.ToolID)
	r.inText = false
	switch {
	case c == nil:
	case hidden(c.tool):
		if entries := planOf(c.input); entries != nil && !e.IsError {
			r.update(planUpdate{"plan", entries})
		}
	default:
		r.update(ended(e.ToolID, e.Result, e.IsError, c.diffs))
	}
}

// ended is a call that has ended. A change that succeeded is shown as such; of anything else the result is.
func ended(id, result string, failed bool, diffs []callContent) callUpdate {
	update := callUpdate{Kind: "tool_call_update", ToolCallID: id, Status: "completed"}
	switch {
	case failed:
		update.Status, update.Content = "failed", append(diffs[:len(diffs):len(diffs)], shown(result)...)
	case len(diffs) == 0:
		update.Content = shown(result)
	}
	return update
}

// endCalls tells of the calls that were cut off.
func (r *telling) endCalls() {
	for id, c := range r.calls {
		if !hidden(c.tool) {
			r.update(ended(id, "It did not come to an end.", true, nil))
		}
	}
	clear(r.calls)
}

func (r *telling) notice(title, description string) {
	if r.s.canShow().notices {
		r.update(noticeUpdate{"notice", "warning", title, description})
	}
}

func (r *telling) compaction(status, problem string) {
	if r.s.canShow().compaction {
		r.update(compactionUpdate{"compaction_update", r.turn.id + "-" + strconv.Itoa(r.compactions), status, problem})
	}
}

// ask has the editor asked about a call, of the agent or of one that it created.
func (r *telling) ask(ctx context.Context, agent string, e protocol.PermissionRequest) {
	if r.questions[e.RequestID] != nil {
		return
	}
	ctx, withdraw := context.WithCancel(ctx)
	r.questions[e.RequestID] = withdraw
	q := question{s: r.s, c: r.c, turn: r.turn, session: r.turn.of.id, agent: agent, request: e}
	q.call = described(e.ToolID, e.ToolName, e.Input, r.dir)
	q.call.Title = textcut.Clip(cli.Harmless(e.Summary, true), maxSummary) // the content has all
	for _, path := range e.Paths {
		if len(q.call.Locations) == 0 {
			q.call.Locations = append(q.call.Locations, location{Path: path})
		}
	}
	if c := r.calls[e.ToolID]; c != nil && agent == q.session {
		q.diffs = c.diffs
	} else {
		q.call.ToolCallID, q.call.Title = agent+"/"+e.ToolID, agent+": "+q.call.Title
	}
	q.call.Status, q.call.Content = "pending", append(q.diffs[:len(q.diffs):len(q.diffs)], callContent{Type: "content", Content: new(textBlock(verbatim(cli.DescribeRequest(agent, e))))})
	r.asking.Go(func() {
		defer withdraw()
		q.put(ctx)
	})
}
