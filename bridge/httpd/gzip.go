package httpd

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
)

// minGzip is how long an answer is at least, in bytes, for gzip to be worth its
// time.
const minGzip = 1 << 10

// errGzip says that a body is not what its Content-Encoding says.
var errGzip = errors.New("not gzip")

// decoded is a request's body without its Content-Encoding; known is false if
// we do not know that. Reading it unpacks no more than was asked for.
func decoded(encoding string, body io.ReadCloser) (plain io.ReadCloser, known bool) {
	switch {
	case encoding == "", strings.EqualFold(encoding, "identity"):
		return body, true
	case strings.EqualFold(encoding, "gzip"), strings.EqualFold(encoding, "x-gzip"):
		return &gunzip{body: body}, true
	}
	return body, false
}

// gunzip unpacks a body. Its errors are errGzip and those of the body.
type gunzip struct {
	body io.ReadCloser
	in   *gzip.Reader // nil until something is read
}

func (g *gunzip) Read(p []byte) (n int, err error) {
	if g.in == nil {
		if g.in, err = gzip.NewReader(g.body); err != nil {
			return 0, asGzip(err)
		}
	}
	n, err = g.in.Read(p)
	return n, asGzip(err)
}

func (g *gunzip) Close() error { return g.body.Close() }

// asGzip tells what is wrong with the packing from what is wrong with the
// connection.
func asGzip(err error) error {
	if _, ok := errors.AsType[flate.CorruptInputError](err); ok {
		return errors.Join(errGzip, err)
	}
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.Join(errGzip, err)
	}
	return err
}

// accepts reports whether a client names what it would be given, in an Accept or
// Accept-Encoding header, and not with the weight 0, which refuses it.
func accepts(accepts []string, what string) bool {
	for _, accept := range accepts {
		for one := range strings.SplitSeq(accept, ",") {
			name, params, _ := strings.Cut(one, ";")
			if strings.EqualFold(strings.TrimSpace(name), what) {
				return weight(params) > 0
			}
		}
	}
	return false
}

// weight is the q among parameters, 1 without one, and 0 for one that is no number.
func weight(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return 0
			}
			return q
		}
	}
	return 1
}

// gzipWriters are kept, because making one costs a megabyte.
var gzipWriters = sync.Pool{New: func() any {
	packer, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return packer
}}

// pack is a body in parts, packed by gzip.
func pack(parts [][]byte) []byte {
	packer, _ := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(packer)
	var out bytes.Buffer
	packer.Reset(&out) // its errors are those of out, which has none
	for _, part := range parts {
		_, _ = packer.Write(part)
	}
	_ = packer.Close()
	return out.Bytes()
}
