package broker

import (
	"context"
	"net"

	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
)

// ScrubErrors passes an answer through an errorScrubber in pieces of n bytes; it returns what
// came out for each piece, and at the end, and how many bytes were held at most.
func ScrubErrors(answer []byte, n int, key string) (out []string, held int) {
	s := errorScrubber{secrets: redact.Secrets{key}}
	for len(answer) > 0 {
		piece := answer[:min(n, len(answer))]
		answer = answer[len(piece):]
		out = append(out, string(s.next(piece)))
		held = max(held, len(s.held))
	}
	return append(out, string(s.rest())), held
}

// MaxErrorBody bounds what an errorScrubber holds, in bytes.
const MaxErrorBody = maxErrorBody

// DialWith has services reached by another way. It is called before the first
// request.
func (b *Broker) DialWith(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	b.transport.DialContext = dial
}

// ListenWith has wrap change the listeners of sockets that are opened from now on. It is
// called before the first Register.
func (b *Broker) ListenWith(wrap func(net.Listener) net.Listener) {
	b.listen = func(path string) (net.Listener, error) {
		ln, err := safefile.ListenSocket(path)
		if err != nil {
			return nil, err
		}
		return wrap(ln), nil
	}
}

// LowerMaxEvent bounds events by n bytes until undo is called: the whole bound takes long to
// fill under the race detector.
func LowerMaxEvent(n int) (undo func()) {
	before := maxEvent
	maxEvent = n
	return func() { maxEvent = before }
}

// SocketPath is where an agent's socket will be.
func (b *Broker) SocketPath(agent string) string { return b.socketPath(agent) }

// Shares are the agents that an agent comes from.
func (b *Broker) Shares(agent string) []supervisor.Share { return b.shares(agent) }
