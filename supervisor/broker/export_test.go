package broker

import (
	"context"
	"net"

	"nexus.internal/protocol/redact"
)

// Meter reads the usage off an answer in pieces of the given sizes, over and
// over; it returns what a request of asked tokens used and how many bytes were
// held at most.
func Meter(answer []byte, events bool, asked uint64, sizes ...int) (used Usage, held int) {
	m := meter{events: events}
	for i := 0; len(answer) > 0; i++ {
		n := min(max(sizes[i%len(sizes)], 1), len(answer))
		_, _ = m.Write(answer[:n])
		answer = answer[n:]
		held = max(held, cap(m.scanner.kept))
	}
	return m.sum(asked), held
}

// MaxUsage bounds what a meter holds, in bytes.
const MaxUsage = maxUsage

// RequestTokens estimates those of a request's body.
func RequestTokens(body []byte) uint64 {
	var s usageScanner
	s.write(body)
	return s.tokens()
}

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
		ln, err := listenAt(path)
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
