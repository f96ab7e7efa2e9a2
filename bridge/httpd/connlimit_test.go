package httpd

import (
	"net/http"
	"testing"
)

// Of the connections of one key, the first to go is idle, else one whose answer is written and
// whose line of the log is not, else the oldest.
func TestWhichConnectionGoes(t *testing.T) {
	l := newConnLimiter(3, 0)
	stream, answered, other := &conn{}, &conn{}, &conn{}
	add := func(one *conn) *conn {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.addScoped(one, "key")
	}
	for _, one := range []*conn{stream, answered, other} {
		if gone := add(one); gone != nil {
			t.Fatal("one goes where there is room")
		}
	}
	next := &conn{}
	if gone := add(next); gone != stream {
		t.Error("the oldest does not go where all have a request")
	}
	l.forget(next)
	l.setAnswered(answered)
	if gone := add(next); gone != answered {
		t.Error("one that has its answer is not the first to go")
	}
	l.forget(next)
	l.setState(other, http.StateIdle)
	if gone := add(next); gone != other {
		t.Error("an idle one is not the first to go")
	}
	l.setState(answered, http.StateActive)
	l.setState(other, http.StateActive)
	l.forget(next)
	if gone := add(next); gone != stream {
		t.Error("a new request is taken for an answered one")
	}
}
