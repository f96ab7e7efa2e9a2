package bridge

import (
	"bytes"
	"net/http"
	"regexp"
	"sync"

	"nexus.internal/protocol/jsonrpc"
)

// framing hands the bytes of a connection on so that none of a request is read
// together with those of the one before it, and keeps each request's head as it was
// written: net/http forgets there what would let two readers see two requests. It is
// safe for concurrent use.
type framing struct {
	mu   sync.Mutex // guards what follows
	came []byte     // read, and not handed on yet; at most what one Read can take
	// head is that of the request which is being read, without the empty lines before
	// it; whole says that it has ended. What comes before begin is called is of the next.
	head  []byte
	whole bool
	next  []byte // of the next head: at most the byte by which net/http looks for the client's end
	// left is how much of the body is to come, in bytes; negative without an end.
	left int64
}

// room is how much may be read at once for a reader that takes n bytes.
func (f *framing) room(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left > 0 {
		return int(min(int64(n), f.left))
	}
	return n
}

// take moves what came before into p and returns how much, 0 if there is nothing.
func (f *framing) take(p []byte) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := copy(p, f.came)
	kept := f.pass(p[:n])
	f.came = f.came[kept:]
	return kept
}

// keep is told what was read into p, and returns how much of it is handed on now.
func (f *framing) keep(p []byte) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.pass(p)
	f.came = append(f.came, p[n:]...)
	return n
}

// pass counts the bytes that are handed on: all of p, or those up to the end of the
// head or of the body. mu is held.
func (f *framing) pass(p []byte) int {
	switch {
	case f.left < 0:
		return len(p)
	case f.left > 0:
		n := int(min(int64(len(p)), f.left))
		f.left -= int64(n)
		return n
	case f.whole:
		f.next = append(f.next, p[:min(1, len(p))]...)
		return min(1, len(p))
	}
	n := 0
	if len(f.head) == 0 { // as net/http does after a POST; else it refuses them
		n = len(p) - len(bytes.TrimLeft(p, "\r\n"))
	}
	before := len(f.head)
	f.head = append(f.head, p[n:]...)
	if end := endOfHead(f.head, before); end >= 0 {
		f.head, f.whole = f.head[:end], true
		return n + end - before
	}
	return len(p)
}

// endOfHead is where the empty line ends that ends a head, of which all before from
// was looked at already; negative if it has not come. Lines end as net/http reads
// them: by LF, or CR and LF.
func endOfHead(head []byte, from int) int {
	for i := max(0, from-2); ; {
		at := bytes.IndexByte(head[i:], '\n')
		if at < 0 {
			return -1
		}
		i += at + 1
		rest := head[i:]
		switch {
		case bytes.HasPrefix(rest, []byte("\n")):
			return i + 1
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return i + 2
		}
	}
}

// begin says that the head has been understood, and that a body of so many bytes
// follows, negative if it says itself where it ends: then nothing is told apart any
// more, and the connection must end with the answer. It returns the head.
func (f *framing) begin(body int64) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	head := f.head
	f.head, f.next, f.whole, f.left = bytes.TrimLeft(f.next, "\r\n"), nil, false, body
	return head
}

// checkFraming says why a request with that head must not be answered: whoever
// stands between its client and us may have seen another one.
func checkFraming(head []byte, r *http.Request) (refused refusal, ok bool) {
	codings := codingLine.Match(head)
	switch {
	case !bytes.HasPrefix(head, []byte(r.Method+" "+r.RequestURI+" "+r.Proto)):
		return malformedHTTP, false
	case r.ProtoMajor != 1 || r.ProtoMinor > 1:
		return unknownVersion, false
	case len(head) > maxHeader: // net/http counts less of a second request
		return longHead, false
	case codings && r.ProtoMinor == 0:
		return codingTooEarly, false
	case codings && lengthLine.Match(head):
		return twoLengths, false
	}
	return refusal{}, true
}

// What net/http lets pass and we do not.
var (
	codingTooEarly = refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", "INVALID_REQUEST",
		"HTTP/1.0 has no Transfer-Encoding", "Speak HTTP/1.1, or send a Content-Length.")
	twoLengths = refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", "INVALID_REQUEST",
		"there is a Content-Length beside a Transfer-Encoding", "Send one of them.")
)

// Headers that say how long a body is, at the beginnings of their lines.
var (
	codingLine = regexp.MustCompile(`(?im)^transfer-encoding:`)
	lengthLine = regexp.MustCompile(`(?im)^content-length:`)
)
