package httpd

import (
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"nexus.internal/bridge/rpc"
)

// maxKeyless is how many bodies without a key are read at once, to see whether they are
// signed.
const maxKeyless = 16

// readBody reads a body of the right size and type, unless the request is refused whatever
// the body has. A request without a key is told that alone, whatever else is wrong with it.
func (s *Server) readBody(x *exchange) (body []byte, refused rpc.Error, ok bool) {
	keyless := x.key.IsZero()
	if refused, ok = s.precheck(x); ok && keyless {
		select {
		case s.keyless <- struct{}{}:
			defer func() { <-s.keyless }()
		default:
			return nil, s.retryAfter(x, tooMany, time.Second), false
		}
	}
	if ok {
		body, refused, ok = s.receiveBody(x)
	}
	if !ok && keyless {
		refused = noKey
	}
	return body, refused, ok
}

// precheck refuses a request that no body could make good.
func (s *Server) precheck(x *exchange) (refused rpc.Error, ok bool) {
	if x.r.ContentLength > MaxBody {
		return tooLarge, false
	}
	if refused, ok = checkType(x.r.Header); !ok {
		return refused, false
	}
	if s.o.Requests.Closed() {
		return draining, false
	}
	if wait := s.access.Load().rate.Wait(x.by.Grant.ID); wait > 0 && !x.key.IsZero() {
		return s.retryAfter(x, tooMany, wait), false
	}
	return rpc.Error{}, true
}

// receiveBody reads the whole body, within the bounds of size and time.
func (s *Server) receiveBody(x *exchange) ([]byte, rpc.Error, bool) {
	buf := make([]byte, 0, max(x.r.ContentLength, 0)+512)
	// What is packed is bounded as it comes, and again as it unfolds.
	body := http.MaxBytesReader(x.w, x.r.Body, MaxBody)
	if plain, known := decoded(strings.Join(x.r.Header.Values("Content-Encoding"), ", "), body); known {
		body = http.MaxBytesReader(x.w, plain, MaxBody)
	}
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, len(buf))
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			// From here on the connection is read only to notice that the client
			// left; the limit on the request must not look like that.
			_ = x.rc.SetReadDeadline(time.Time{})
			x.whole = true
			return buf, rpc.Error{}, true
		case err != nil:
			return nil, bodyError(err), false
		}
	}
}

// bodyError is the answer to a body that could not be read.
func bodyError(err error) rpc.Error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return tooSlow
	}
	if errors.Is(err, errGzip) {
		return badGzip
	}
	return brokenBody
}

// checkType refuses a body that the headers do not declare as one that we read:
// JSON, what curl declares on its own, or nothing at all, packed by gzip or not.
func checkType(h http.Header) (refused rpc.Error, ok bool) {
	encoding := strings.Join(h.Values("Content-Encoding"), ", ")
	if _, known := decoded(encoding, nil); !known {
		return badEncoding(encoding), false
	}
	declared := h.Values("Content-Type")
	switch {
	case len(declared) > 1:
		return badType(strings.Join(declared, " and ")), false
	case len(declared) == 0 || declared[0] == "":
		return rpc.Error{}, true
	}
	media, params, err := mime.ParseMediaType(declared[0])
	charset, named := params["charset"]
	switch {
	case err != nil:
	case media == "application/x-www-form-urlencoded",
		media == "application/json" && (!named || strings.EqualFold(charset, "utf-8")):
		return rpc.Error{}, true
	}
	return badType(declared[0]), false
}
