package supervisor

// outbox has what is to be done in order, by one goroutine at a time: the one that claims
// it. The owner guards it, and what its items stand for bounds it.
type outbox[T any] struct {
	items   []T // oldest first
	claimed bool
}

func (o *outbox[T]) add(item T) { o.items = append(o.items, item) }

func (o *outbox[T]) clear() { o.items = nil }

// claim takes the first item, and the claim with it; false if there is none, or somebody
// has the claim.
func (o *outbox[T]) claim() (item T, ok bool) {
	if len(o.items) == 0 || o.claimed {
		return item, false
	}
	o.claimed = true
	return o.next()
}

// next takes the next item for the one that has the claim. False ends the claim.
func (o *outbox[T]) next() (item T, ok bool) {
	if len(o.items) == 0 {
		o.items, o.claimed = nil, false
		return item, false
	}
	item = o.items[0]
	clear(o.items[:1])
	o.items = o.items[1:]
	return item, true
}
