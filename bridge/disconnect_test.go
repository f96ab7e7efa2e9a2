package bridge_test

import (
	"io"
	"testing"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/supervisor/supervisortest"
)

// A client that leaves takes its turn with it if it asked for that, whether the
// turn runs or waits, and else never.
func TestOnDisconnect(t *testing.T) {
	for _, test := range []struct {
		name      string
		accept    string
		waits     bool   // for a turn of another client
		ask       string // further parameters
		cancelled bool
	}{
		{name: "cancel", ask: `,"on_disconnect":"cancel"`, cancelled: true},
		{name: "cancel, as a stream", accept: "text/event-stream", ask: `,"on_disconnect":"cancel"`, cancelled: true},
		{name: "cancel, waiting", waits: true, ask: `,"on_disconnect":"cancel"`, cancelled: true},
		{name: "continue", ask: `,"on_disconnect":"continue"`},
		{name: "nothing said, as a stream", accept: "text/event-stream"},
		{name: "nothing said"},
	} {
		t.Run(test.name, func(t *testing.T) {
			begun, release := make(chan string, 2), make(chan struct{})
			r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
				c.Say("some")
				begun <- p.ID
				select {
				case <-c.Aborted():
					c.Finish(p, "")
				case <-release:
					c.Finish(p, " more")
				case <-c.Gone():
				}
			}))
			r.create("a")
			if test.waits {
				r.begin("a", "first")
				<-begun
			}
			body := `{"jsonrpc":"2.0","method":"send","params":{"content":"x","request_id":"r"` + test.ask + `},"id":1}`
			conn := r.dial()
			head := r.head("POST /agent/a HTTP/1.1")
			if test.accept != "" {
				head += "Accept: " + test.accept + "\r\n"
			}
			if _, err := io.WriteString(conn, withLength(head, body)); err != nil {
				t.Fatal(err)
			}
			if test.waits {
				r.queued("a", 1)
			} else {
				<-begun
			}
			left := r.logs.seen("client left")
			conn.Close()
			select {
			case <-left:
			case <-time.After(patience):
				t.Fatal("the server does not notice that the client left")
			}
			close(release)
			got, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "x", RequestID: new("r")})
			if err != nil || got.Cancelled != test.cancelled {
				t.Errorf("the turn: %+v, %v", got, err)
			}
		})
	}
}
