package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidwall/gjson"
)

// What a server may send (SPEC §4.9). What answers a call of ours is bounded by
// maxMessage alone.
const (
	maxMessage   = 8 << 20     // bytes
	windowLength = time.Minute // in which the following are counted
	maxMessages  = 10_000      // that answer nothing
	maxBytes     = 64 << 20    // of these
	maxRequests  = 600         // beyond, they get no answer
	maxJunk      = 100         // lines that are no messages, in all
)

var (
	errMessageSize = fmt.Errorf("it sent a message of more than %d bytes", maxMessage)
	errFlood       = errors.New("it floods: it sent too many messages that nobody asked for")
	errJunk        = errors.New("it writes to stdout what is no JSON-RPC")
)

// flowLimit looks at what a server sends before the SDK does, whose queues have no
// bound. It is safe for concurrent use.
type flowLimit struct {
	endConnection context.CancelCauseFunc // ends the connection, for what the server did

	mu                        sync.Mutex // guards all below
	since                     time.Time  // the window began
	messages, bytes, requests int        // in this window
}

// admit reports whether a message, valid JSON, is passed on. answers says that a
// call of ours waits for it. An error ends the connection.
func (g *flowLimit) admit(raw []byte, answers bool) (bool, error) {
	method := gjson.GetBytes(raw, "method")
	if !method.Exists() && answers {
		return true, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.since) > windowLength {
		g.since, g.messages, g.bytes, g.requests = now, 0, 0, 0
	}
	g.messages++
	g.bytes += len(raw)
	if g.messages > maxMessages || g.bytes > maxBytes {
		return false, errFlood
	}
	if !method.Exists() {
		return true, nil
	}
	if !gjson.GetBytes(raw, "id").Exists() {
		switch method.Str {
		case "notifications/tools/list_changed", "notifications/prompts/list_changed":
			return true, nil
		default:
			return false, nil // we act on no other
		}
	}
	g.requests++
	return g.requests <= maxRequests, nil
}

// readLine reads a line with its end, of at most most bytes: of a longer one the error is
// errMessageSize. A line that the end of the stream cuts off comes with the error.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var whole []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(whole)+len(part) > most {
			return nil, errMessageSize
		}
		whole = append(whole, part...)
		if err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			return whole, err
		}
	}
}
