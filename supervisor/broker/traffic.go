package broker

// Traffic is what one service was asked since the broker was made.
type Traffic struct {
	// Refused were not forwarded: they were over a limit, too large or without a
	// key.
	Refused uint64
	// Each of the others is one of these when it is over.
	Answered    uint64 // by a success; also if its model had ended the answer when the stream broke off
	Failed      uint64 // by an error, or an answer that broke off
	Unreachable uint64 // by nobody
	Abandoned   uint64 // the child left before the model had ended its answer
	// Used is what the others cost.
	Used Usage
}

// result is what became of a request that was let in.
type result int

const (
	answered result = iota + 1
	failed
	unreachable
	abandoned
)

func (c result) String() string {
	return [...]string{answered: "answered", failed: "failed", unreachable: "unreachable", abandoned: "abandoned"}[c]
}

// count adds a request that is over.
func (t *Traffic) count(c result, used Usage) {
	switch c {
	case answered:
		t.Answered++
	case unreachable:
		t.Unreachable++
	case abandoned:
		t.Abandoned++
	case failed:
		t.Failed++
	}
	t.Used.add(used)
}

func (b *Broker) countRefused(s *service) {
	if s == nil { // for no service of ours
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.traffic[s.name].Refused++
}
