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
// the body has. A request without a key gets that error alone, whatever else is wrong with it.
func (s *Server) readBody(x *request) (body []byte, refused *rpc.Error) {
	keyless := x.key.IsZero()
	if refused = s.precheck(x); refused == nil && keyless {
		select {
		case s.keyless <- struct{}{}:
			defer func() { <-s.keyless }()
		default:
			return nil, x.retryAfter(tooMany, time.Second)
		}
	}
	most := MaxBody // bytes that the body can have
	if x.r.ContentLength >= 0 && x.r.Header.Get("Content-Encoding") == "" {
		most = int(x.r.ContentLength)
	}
	if refused == nil && !x.share.Add(most) {
		return nil, x.retryAfter(&rpc.OverBudget, time.Second)
	}
	if refused == nil {
		body, refused = s.receiveBody(x)
	}
	if refused == nil {
		x.share.Add(len(body) - most)
	}
	if refused != nil && keyless {
		refused = noKey
	}
	return body, refused
}

// precheck refuses a request that no body could make good.
func (s *Server) precheck(x *request) *rpc.Error {
	if x.r.ContentLength > MaxBody {
		return tooLarge
	}
	if refused := checkType(x.r.Header); refused != nil {
		return refused
	}
	if wait := s.access.Load().rate.Wait(x.by.Grant.ID); wait > 0 && !x.key.IsZero() {
		return x.retryAfter(tooMany, wait)
	}
	return nil
}

// receiveBody reads the whole body, within the bounds of size and time.
func (s *Server) receiveBody(x *request) ([]byte, *rpc.Error) {
	buf := make([]byte, 0, max(x.r.ContentLength, 0)+512)
	// What is packed is bounded as it comes, and again as it unfolds.
	body := http.MaxBytesReader(x.w, x.r.Body, MaxBody)
	if plain, known := decoded(strings.Join(x.r.Header.Values("Content-Encoding"), ", "), body); known && plain != body {
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
			return buf, nil
		case err != nil:
			return nil, bodyError(err)
		}
	}
}

// bodyError is the answer to a body that could not be read.
func bodyError(err error) *rpc.Error {
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
func checkType(h http.Header) *rpc.Error {
	encoding := strings.Join(h.Values("Content-Encoding"), ", ")
	if _, known := decoded(encoding, nil); !known {
		return badEncoding(encoding)
	}
	declared := h.Values("Content-Type")
	switch {
	case len(declared) == 1 && declared[0] == "application/json": // nearly all
		return nil
	case len(declared) > 1:
		return badType(strings.Join(declared, " and "))
	case len(declared) == 0 || declared[0] == "":
		return nil
	}
	media, params, err := mime.ParseMediaType(declared[0])
	charset, named := params["charset"]
	switch {
	case err != nil:
	case media == "application/x-www-form-urlencoded",
		media == "application/json" && (!named || strings.EqualFold(charset, "utf-8")):
		return nil
	}
	return badType(declared[0])
}
