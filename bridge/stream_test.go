package bridge_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/supervisor/supervisortest"
)

// stream sends with Accept: text/event-stream over a connection of its own.
// The connection holds little, so a server soon notices who does not read.
func (r *rig) stream(agent, body string) *bufio.Scanner {
	r.t.Helper()
	conn := r.dial()
	if err := conn.(*net.TCPConn).SetReadBuffer(256 << 10); err != nil {
		r.t.Fatal(err)
	}
	head := r.head("POST /agent/"+agent+" HTTP/1.1") + "Accept: text/event-stream\r\nConnection: close\r\n"
	if _, err := io.WriteString(conn, withLength(head, body)); err != nil {
		r.t.Fatal(err)
	}
	lines := bufio.NewScanner(patientConn{conn})
	lines.Buffer(nil, 32<<20)
	return lines
}

// patientConn waits for the next bytes as long as patience, however long all of them take.
type patientConn struct{ net.Conn }

func (c patientConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// data is the next event's.
func data(t *testing.T, lines *bufio.Scanner) gjson.Result {
	t.Helper()
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return gjson.Parse(text)
		}
	}
	t.Fatalf("the stream ended: %v", lines.Err())
	return gjson.Result{}
}

// rest joins the chunks up to the response, and is its result.
func rest(t *testing.T, lines *bufio.Scanner) (joined string, result gjson.Result) {
	t.Helper()
	var text strings.Builder
	chunks := 0
	for {
		event := data(t, lines)
		switch event.Get("method").Str {
		case api.StreamStart:
		case api.StreamData:
			chunks++
			text.WriteString(event.Get("params.chunk").Str)
		case api.StreamEnd:
			if n := int(event.Get("params.total_chunks").Int()); n < chunks {
				t.Errorf("total_chunks %d, and %d came", n, chunks)
			}
		default:
			return text.String(), event.Get("result")
		}
	}
}

// A client that reads slower than a turn talks gets larger chunks, and all of
// the text: the agent's events let go of what it has yet to read.
func TestStreamingSendReadSlowly(t *testing.T) {
	const words = 2000 // as events or as text, more than a subscriber or a socket may owe
	word := strings.Repeat("wörd ", 600)
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(func(c *supervisortest.Child, p protocol.Prompt) {
			for range words {
				c.Say(word)
			}
			c.Finish(p, "")
		})(r, o)
		o.WriteTimeout = time.Hour // however long the turn takes, at whose end the stream is read
	})
	r.create("a")
	lines := r.stream("a", `{"jsonrpc":"2.0","method":"send","params":{"content":"x","request_id":"r"},"id":1}`)
	if start := data(t, lines); start.Get("method").Str != api.StreamStart {
		t.Fatalf("the stream begins with %s", start)
	}
	whole, err := client.Do(t.Context(), r.client, "a", api.Send, api.SendParams{Content: "x", RequestID: new("r")}) // returns at the end
	if err != nil {
		t.Fatal(err)
	}
	got, result := rest(t, lines)
	if want := strings.Repeat(word, words); got != want || result.Get("content").Str != want || *whole.Content != want {
		t.Errorf("got %d bytes in chunks, %d as the stream's content and %d as the other's, want %d of each",
			len(got), len(result.Get("content").Str), len(*whole.Content), len(want))
	}
}

// Whoever joins a send that runs, or has ended, gets its text from the start.
func TestStreamingSendJoined(t *testing.T) {
	first, release := strings.Repeat("early ", 20_000), make(chan struct{})
	said := make(chan struct{})
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		for range 20_000 {
			c.Say("early ")
		}
		close(said)
		select {
		case <-release:
			c.Say("late")
			c.Finish(p, "")
		case <-c.Gone():
		}
	}))
	r.create("a")
	starter := r.sendAsync("a", api.SendParams{Content: "x", RequestID: new("r")})
	<-said
	const body = `{"jsonrpc":"2.0","method":"send","params":{"content":"x","request_id":"r"},"id":1}`
	joining := r.stream("a", body)
	data(t, joining) // stream_start
	got := data(t, joining).Get("params.chunk").Str
	for len(got) > 0 && len(got) < len(first) {
		got += data(t, joining).Get("params.chunk").Str
	}
	if got != first {
		t.Errorf("while it runs: got %d bytes, want the %d that were said", len(got), len(first))
	}
	close(release)
	r.await(starter)
	got, _ = rest(t, joining)
	if got != "late" {
		t.Errorf("then: got %q, want the rest", got)
	}
	got, result := rest(t, r.stream("a", body)) // it has ended
	if got != first+"late" || result.Get("content").Str != got || !result.Get("replayed").Bool() {
		t.Errorf("replayed: got %d bytes in chunks, want %d", len(got), len(first+"late"))
	}
}

// A client that leaves a stream ends the stream and not the turn.
func TestDisconnectEndsTheStreamAlone(t *testing.T) {
	release := make(chan struct{})
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		c.Say("one ")
		select {
		case <-release:
			c.Say("two")
			c.Finish(p, "")
		case <-c.Aborted():
			c.Finish(p, "")
		case <-c.Gone():
		}
	}))
	r.create("a")
	left := r.logs.seen(`"client left"`)
	ctx, leave := context.WithCancel(r.ctx())
	_, err := r.sendStream(ctx, "a", api.SendParams{Content: "x", RequestID: new("r")}, func(string) { leave() }, nil)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the client's own error is %v", err)
	}
	select {
	case <-left:
	case <-r.ctx().Done():
		t.Fatal("the server still serves the stream")
	}
	joined := r.sendAsync("a", api.SendParams{Content: "x", RequestID: new("r")})
	close(release)
	if s := r.await(joined); s.err != nil || s.result.Cancelled || *s.result.Content != "one two" {
		t.Errorf("got %+v, want the answer of the turn that went on", s)
	}
}
