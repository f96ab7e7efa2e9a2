package tunnel

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"nexus.internal/fixtures"
)

// recorded are the messages of a connection as programs of format 1 send them: those of the side that dials, and those of the other.
func recorded(t *testing.T) (sent, answered []string) {
	t.Helper()
	for line := range strings.Lines(string(fixtures.Read(t, "cluster/connection-1.txt"))) {
		from, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		message, err := strconv.Unquote(quoted)
		switch {
		case err != nil:
			t.Fatalf("%q: %v", line, err)
		case from == ">":
			sent = append(sent, message)
		default:
			answered = append(answered, message)
		}
	}
	return sent, answered
}

// A connection has the messages that were recorded, with a program that knows nothing but them.
func TestRecordedConnection(t *testing.T) {
	s := broker(t)
	a, other := machine(t, s), machine(t, s).nc
	a.silence, a.sayRead = time.Hour, 1 // so that it says nothing by itself, and what it has read at once
	asked, err := other.SubscribeSync("b")
	if err != nil {
		t.Fatal(err)
	}
	heard, err := other.SubscribeSync("other.side")
	if err == nil {
		err = other.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	next := func(from *nats.Subscription) *nats.Msg {
		t.Helper()
		m, err := from.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	sent, answered := recorded(t)
	dialled := make(chan *Conn, 1)
	go func() {
		c, err := a.Dial(t.Context(), "b")
		if err != nil {
			t.Error(err)
		}
		dialled <- c
	}()
	question := next(asked)
	if err := question.Respond([]byte("other.side")); err != nil {
		t.Fatal(err)
	}
	c := <-dialled
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	got := []string{string(next(heard).Data)}
	for _, message := range answered {
		if err := other.Publish(string(question.Data), []byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	world := make([]byte, 5)
	if _, err := io.ReadFull(c, world); err != nil || string(world) != "world" {
		t.Errorf("%q, %v", world, err)
	}
	got = append(got, string(next(heard).Data))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	got = append(got, string(next(heard).Data), string(next(heard).Data))
	if !slices.Equal(got, sent) {
		t.Errorf("the messages are %q, want %q; if that is meant, it is another format", got, sent)
	}
}

// Who asks for a connection of a later format gets no connection and is told why, also if that is a program that does not look for the reason.
func TestLaterConnection(t *testing.T) {
	s := broker(t)
	a, b := machine(t, s), machine(t, s)
	l, err := b.Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const want = "a connection between machines has format 2, and this program reads 1: upgrade it"
	answer, err := a.nc.RequestWithContext(t.Context(), "b", []byte(`{"format":2,"at":"_INBOX.x"}`))
	if err != nil || len(answer.Data) != 0 || answer.Header.Get(whyHeader) != want {
		t.Errorf("it is answered by %+v, %v", answer, err)
	}
	if got := b.later.Warnings(); !slices.Equal(got, []string{want}) || len(l.waiting) != 0 {
		t.Errorf("warnings: %q; %d connections", got, len(l.waiting))
	}
	refusing, err := b.nc.Subscribe("c", func(m *nats.Msg) { _ = m.RespondMsg(answer) })
	if err == nil {
		err = b.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = refusing.Unsubscribe() }()
	if _, err := a.Dial(t.Context(), "c"); err == nil || !strings.Contains(err.Error(), "the other machine refuses it: "+want) {
		t.Errorf("who is refused learns %v", err)
	}
}
