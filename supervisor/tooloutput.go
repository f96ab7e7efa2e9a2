package supervisor

import (
	"bytes"

	"nexus.internal/protocol"
)

// Bounds of the output of running tools that waits for one subscriber (SPEC §7).
const (
	maxLiveOutput = 64 << 10 // bytes
	maxLivePieces = 256
)

// liveOutput is what running tools put out that one subscription has yet to read, oldest first.
// Nothing of it is numbered or kept: what is beyond the bounds is left out, from the oldest on.
// A nil liveOutput has nothing. The hub's mutex guards it.
type liveOutput struct {
	pieces []livePiece
	size   int // bytes of text and ids
}

// livePiece is what one call put out between two numbered events.
type livePiece struct {
	after   uint64 // the number of the event before it
	tool    string // the call's id
	text    []byte
	omitted uint64 // bytes before text that were left out
}

// FollowOutput makes Next return what tools put out while they run, too, from now on: events
// message_update with a toolcall_output_delta, without a number, each where it came among the
// numbered ones. It is not kept. A subscriber that is slow to read finds up to 64 KiB of it and how much
// was left out. While nobody follows it, the child does not send it.
func (s *Subscription) FollowOutput() {
	if s.followOutput() {
		s.hub.agent.tellOutputWanted()
	}
}

// followOutput reports whether it is the first one that wants the output of tools.
func (s *Subscription) followOutput() (first bool) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.err != nil || h.output[s] != nil {
		return false
	}
	if h.output == nil {
		h.output = map[*Subscription]*liveOutput{}
	}
	h.output[s] = &liveOutput{}
	return len(h.output) == 1
}

func (h *hub) outputWanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.output) > 0
}

// publishOutput hands a piece of a tool's output to those who want it.
func (h *hub) publishOutput(e protocol.ToolcallOutputDelta) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s, o := range h.output {
		o.add(livePiece{after: h.last, tool: e.ToolID, text: []byte(e.Delta), omitted: e.Omitted})
		s.wake()
	}
}

// add appends a piece, to the last one if it goes on with that, and keeps the bounds.
func (o *liveOutput) add(p livePiece) {
	if n := len(o.pieces); n > 0 && o.pieces[n-1].after == p.after && o.pieces[n-1].tool == p.tool && p.omitted == 0 {
		o.pieces[n-1].text = append(o.pieces[n-1].text, p.text...)
		o.size += len(p.text)
	} else {
		o.pieces = append(o.pieces, p)
		o.size += len(p.text) + len(p.tool)
	}
	for o.size > maxLiveOutput || len(o.pieces) > maxLivePieces {
		oldest := &o.pieces[0]
		cut := min(len(oldest.text), o.size-maxLiveOutput)
		if len(o.pieces) > 1 && (cut <= 0 || cut == len(oldest.text)) {
			o.drop()
			continue
		}
		for cut < len(oldest.text) && oldest.text[cut]&0xC0 == 0x80 { // within a character
			cut++
		}
		oldest.omitted += uint64(cut)
		oldest.text = bytes.Clone(oldest.text[cut:])
		if o.size -= cut; cut == 0 { // an id that is longer than the bound
			o.pieces, o.size = nil, 0
		}
	}
}

// drop leaves the oldest piece out. The next one of its call tells.
func (o *liveOutput) drop() {
	gone := o.pieces[0]
	o.pieces = o.pieces[1:]
	o.size -= len(gone.text) + len(gone.tool)
	for i := range o.pieces {
		if o.pieces[i].tool == gone.tool {
			o.pieces[i].omitted += gone.omitted + uint64(len(gone.text))
			return
		}
	}
}

// take appends the pieces up to a numbered event to a batch.
func (o *liveOutput) take(batch []Event, upTo uint64) []Event {
	for o != nil && len(o.pieces) > 0 && o.pieces[0].after <= upTo {
		p := o.pieces[0]
		o.pieces = o.pieces[1:]
		o.size -= len(p.text) + len(p.tool)
		e := protocol.MessageUpdate{Event: protocol.ToolcallOutputDelta{ToolID: p.tool, Delta: string(p.text), Omitted: p.omitted}}
		batch = append(batch, Event{Type: e.Name(), Data: protocol.EncodeEvent(e)})
	}
	return batch
}

// skip leaves out what came before a numbered event: the subscription has read on without it.
func (o *liveOutput) skip(read uint64) {
	for o != nil && len(o.pieces) > 0 && o.pieces[0].after < read {
		o.drop()
	}
}

// tellOutputWanted tells the child whether anybody follows the output of its tools, if it does
// not know.
func (a *Agent) tellOutputWanted() {
	a.update(func(s *agentState) []effect {
		if s.inc == nil || s.state != Ready && s.state != Busy {
			return nil // the next incarnation is told when it is ready
		}
		s.inc.tellOutputWanted(s)
		return s.elsewhere()
	})
}

// tellOutputWanted is that of the agent, for an incarnation that is ready.
func (inc *incarnation) tellOutputWanted(s *agentState) {
	wanted := inc.agent.hub.outputWanted()
	if inc.ending() || wanted == inc.outputOn {
		return
	}
	inc.outputOn, inc.outputAsked = wanted, inc.outputAsked || wanted
	s.calls.enqueue(&call{command: protocol.SetToolOutput{ID: inc.agent.sup.nextID(), On: wanted}, deliver: func(answer) {}})
	s.sendCalls()
}

var outputDelta = []byte(`"toolcall_output_delta"`)

// takeOutput hands a frame to those who follow the output of tools; false if it is none that
// was asked for.
func (inc *incarnation) takeOutput(f protocol.Frame) bool {
	if !inc.outputAsked || f.Type != (protocol.MessageUpdate{}).Name() || !bytes.Contains(f.Raw[:min(len(f.Raw), 256)], outputDelta) {
		return false
	}
	e, err := protocol.Frame{Raw: f.Raw}.Decode() // all of it is checked
	if err != nil {
		return false
	}
	delta, ok := e.(protocol.MessageUpdate).Event.(protocol.ToolcallOutputDelta)
	if ok {
		inc.agent.hub.publishOutput(delta)
	}
	return ok
}
