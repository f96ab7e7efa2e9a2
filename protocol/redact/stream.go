package redact

import "bytes"

// Stream overwrites the secrets of 8 bytes and more in a stream of bytes, whose
// length stays.
type Stream struct {
	secrets Secrets
	held    []byte // the end of what came, if it may be the beginning of a secret
}

// NewStream returns a stream of which nothing has come.
func NewStream(s Secrets) *Stream {
	words := len(s)
	for words > 0 && len(s[words-1]) < minWord {
		words--
	}
	return &Stream{secrets: s[:words]}
}

// Next returns what may go on of all that came. It is valid until the next
// call; p itself may be overwritten.
func (r *Stream) Next(p []byte) []byte {
	if len(r.secrets) == 0 {
		return p
	}
	if len(r.held) > 0 {
		p = append(r.held, p...)
	}
	for _, s := range r.secrets {
		for at := 0; ; at += len(s) {
			i := bytes.Index(p[at:], []byte(s))
			if i < 0 {
				break
			}
			at += i
			blank(p[at : at+len(s)])
		}
	}
	n := len(p) - r.tail(p)
	out := p[:n]
	// Of its own, for out is still to be read and the caller reuses p.
	r.held = append([]byte(nil), p[n:]...)
	return out
}

// tail is how many bytes at the end of p may begin a secret.
func (r *Stream) tail(p []byte) int {
	longest := 0
	for _, s := range r.secrets {
		for n := min(len(s)-1, len(p)); n > longest; n-- {
			if string(p[len(p)-n:]) == s[:n] {
				longest = n
			}
		}
	}
	return longest
}

// Rest is what was held at the end of the stream: the beginning of a secret, and
// then it is one's part, or no such thing.
func (r *Stream) Rest() []byte {
	if len(r.held) >= minPart {
		blank(r.held)
	}
	return r.held
}

func blank(p []byte) {
	for i := range p {
		p[i] = '*'
	}
}
