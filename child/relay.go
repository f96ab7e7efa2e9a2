package child

import (
	"sync"

	"nexus.internal/child/parent"
	"nexus.internal/protocol"
)

// relay passes on what the tools ask and tell the parent, and the parent's answers. It
// is safe for concurrent use.
type relay struct {
	parent  *parent.Client // nil: nothing is asked
	out     *emitter
	flushes chan chan<- struct{} // each is closed when all that was asked before is passed on

	// responding is held while an answer of the parent is acted on and responded
	// to: what follows from it is told after that.
	responding sync.Mutex
}

func newRelay(p *parent.Client, out *emitter) *relay {
	return &relay{parent: p, out: out, flushes: make(chan chan<- struct{})}
}

// run passes on what the tools ask until stop is closed, and then what is left.
func (r *relay) run(stop <-chan struct{}) {
	if r.parent == nil {
		return
	}
	for {
		select {
		case e := <-r.parent.Events():
			r.pass(e)
		case passed := <-r.flushes:
			r.passAll()
			r.awaitResponse()
			close(passed)
		case <-stop:
			r.passAll()
			return
		}
	}
}

func (r *relay) pass(e protocol.Event) {
	r.responding.Lock()
	defer r.responding.Unlock()
	r.out.post(e)
	r.parent.Passed()
}

// passAll passes on what waits now.
func (r *relay) passAll() {
	for {
		select {
		case e := <-r.parent.Events():
			r.pass(e)
		default:
			return
		}
	}
}

// flush returns once what the tools have asked and told the parent so far is
// on its way before any frame that is sent after it. The worker alone calls it,
// while run runs.
func (r *relay) flush() {
	switch {
	case r.parent == nil:
	case r.parent.Quiet(): // as in nearly all turns: run need not be woken
		r.awaitResponse()
	default:
		passed := make(chan struct{})
		r.flushes <- passed
		<-passed
	}
}

// awaitResponse returns once an answer that is acted on is responded to: a call that was
// answered ends after the response to its answer.
func (r *relay) awaitResponse() {
	r.responding.Lock()
	defer r.responding.Unlock()
}

// answer hands the parent's answer to the tool that asked, and responds to it.
func (r *relay) answer(c protocol.Answered[protocol.Acknowledged]) {
	r.responding.Lock()
	defer r.responding.Unlock()
	err := parent.ErrUnknown
	if r.parent != nil {
		err = r.parent.Answer(c)
	}
	r.out.post(response(c, protocol.Acknowledged{}, err))
}
