package redact

import "bytes"

// Stream overwrites the secrets of 8 bytes and more in a stream of bytes, whose
// length stays. Secrets are found in the forms of [Secrets.Text].
type Stream struct {
	secrets [][]byte // the longest first
	held    []byte   // the end of what came, if it may be the beginning of a secret
}

// NewStream returns a stream that nothing has come of.
func NewStream(s Secrets) *Stream {
	r := &Stream{}
	for _, secret := range s {
		if len(secret) >= minWord {
			r.secrets = append(r.secrets, []byte(secret))
		}
	}
	return r
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
	r.blank(p, decoded{text: p})
	keep := r.tail(p)
	if escaped(p) || r.broken(p) {
		for _, d := range layers(p) {
			r.blank(p, d)
			keep = max(keep, r.pending(d, len(p)))
		}
	}
	n := len(p) - keep
	out := p[:n]
	// Of its own, for out is still to be read and the caller reuses p.
	r.held = append([]byte(nil), p[n:]...)
	return out
}

// blank overwrites the secrets of one reading of p.
func (r *Stream) blank(p []byte, d decoded) {
	for _, s := range r.secrets {
		for at := 0; ; at += len(s) {
			i := bytes.Index(d.text[at:], s)
			if i < 0 {
				break
			}
			at += i
			blank(p[d.place(at):d.place(at+len(s))])
		}
	}
}

// tail is how many bytes at the end of p may begin a secret.
func (r *Stream) tail(p []byte) int {
	longest := 0
	for _, s := range r.secrets {
		for rest := p[max(0, len(p)-len(s)+1):]; len(rest) > longest; rest = rest[1:] {
			i := bytes.IndexByte(rest, s[0])
			if i < 0 {
				break
			}
			if rest = rest[i:]; bytes.HasPrefix(s, rest) {
				longest = max(longest, len(rest))
			}
		}
	}
	return longest
}

// broken reports whether p ends with what may break a value into lines, or with the
// beginning of that, and before it with what may begin a secret.
func (r *Stream) broken(p []byte) bool {
	i := bytes.LastIndexAny(p, "\r\n")
	if i < 0 || len(p)-i > len(field)+1 || !bytes.HasPrefix(field, p[i+1:]) {
		return false
	}
	line := p[:i]
	if p[i] == '\n' {
		line = bytes.TrimSuffix(line, []byte("\r"))
	}
	return r.tail(line) > 0
}

// pending is how many bytes at the end of a text of that size may begin a secret by one
// reading of it.
func (r *Stream) pending(d decoded, size int) int {
	end := d.at[len(d.text)]
	if end == size || d.cut || d.broken {
		if n := r.tail(d.text); n > 0 {
			return size - d.at[len(d.text)-n]
		}
	}
	if d.cut {
		return size - end
	}
	return 0
}

// Rest is what was held at the end of the stream: the beginning of a secret, and
// then it is one's part, or no such thing.
func (r *Stream) Rest() []byte {
	n := 0
	for _, d := range append(layers(r.held), decoded{text: r.held}) {
		n = max(n, r.tail(d.text))
	}
	if n >= minPart {
		blank(r.held)
	}
	return r.held
}

func blank(p []byte) {
	for i := range p {
		p[i] = '*'
	}
}
