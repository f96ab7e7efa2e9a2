package mcp

import (
	"bufio"
	"errors"
	"fmt"
	"sync"
	"time"
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

// flowLimit bounds what a server sends that answers no call. It is safe for concurrent use.
type flowLimit struct {
	mu                        sync.Mutex // guards all below
	since                     time.Time  // the window began
	messages, bytes, requests int        // in this window
}

// admit reports whether a message of so many bytes is taken, which answers no call. An error
// ends the connection.
func (g *flowLimit) admit(size int, request bool) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.since) > windowLength {
		g.since, g.messages, g.bytes, g.requests = now, 0, 0, 0
	}
	g.messages++
	g.bytes += size
	if g.messages > maxMessages || g.bytes > maxBytes {
		return false, errFlood
	}
	if request {
		g.requests++
	}
	return !request || g.requests <= maxRequests, nil
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
