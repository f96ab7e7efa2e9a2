package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"

	"nexus.internal/protocol/strict"
)

const (
	// streamTimeout is how long a server may take to open a stream for what it
	// says of itself. One that does not has none.
	streamTimeout = 3 * time.Second
	maxLine       = maxMessage + 1<<10 // bytes, of an event
)

// newBaseTransport is what servers are reached through.
func newBaseTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        90 * time.Second,
	}
}

// httpTransport sends the requests of one connection to a server: with the headers of its
// entry, within bounds, and none once life has ended.
type httpTransport struct {
	base          http.RoundTripper
	headers       map[string]string
	life          context.Context //nolint:containedctx // of the connection, not of a call
	headerTimeout time.Duration   // for the header of an answer
	limit         *flowLimit
	closing       sync.WaitGroup // the request that ends the session
}

// client follows no redirect, which would take the headers along.
func (w *httpTransport) client() *http.Client {
	return &http.Client{
		Transport:     w,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RoundTrip implements [http.RoundTripper]. The SDK holds a lock while it ends a
// session, so that request is made beside it.
func (w *httpTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodDelete {
		return w.send(req)
	}
	last := req.Clone(context.WithoutCancel(req.Context()))
	w.closing.Go(func() {
		if resp, err := w.send(last); err == nil {
			resp.Body.Close()
		}
	})
	return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

func (w *httpTransport) send(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(w.life, cancel)
	release := func() { stop(); cancel() }
	req = req.Clone(ctx)
	for name, value := range w.headers {
		req.Header.Set(name, value)
	}
	timeout := w.headerTimeout
	if req.Method == http.MethodGet {
		timeout = streamTimeout
	}
	traceOf(ctx).sent.Store(true)
	timer := time.AfterFunc(timeout, cancel)
	resp, err := w.base.RoundTrip(req)
	late := !timer.Stop()
	if err != nil {
		release()
		if late && req.Method == http.MethodGet && w.life.Err() == nil {
			return &http.Response{StatusCode: http.StatusMethodNotAllowed, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		}
		if late {
			err = errors.New("it did not answer")
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusNotFound && req.Header.Get("Mcp-Session-Id") != "" {
		traceOf(ctx).absent.Store(true)
	}
	body := &body{ReadCloser: resp.Body, left: maxMessage, limit: w.limit, release: release}
	resp.Body = body
	if resp.StatusCode != http.StatusOK {
		return resp, nil
	}
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind {
	case "application/json":
		resp.Body, resp.ContentLength = &plain{body: body}, -1
	case "text/event-stream":
		body.left = -1
		resp.Body = &events{
			body: body, src: bufio.NewReaderSize(body, 16<<10), limit: w.limit,
			answers: req.Method == http.MethodPost,
		}
	}
	return resp, nil
}

// body is an answer of at most left bytes; -1 is without bound.
type body struct {
	io.ReadCloser
	left    int
	limit   *flowLimit
	release context.CancelFunc
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left < 0 {
		return n, err
	}
	if b.left -= n; b.left < 0 {
		b.left = 0
		b.limit.endConnection(errMessageSize)
		return 0, errMessageSize
	}
	return n, err
}

func (b *body) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// plain is an answer that is one message. It is read as a whole, and sanitized.
type plain struct {
	*body
	whole *bytes.Reader // nil until it was read
}

func (p *plain) Read(b []byte) (int, error) {
	if p.whole == nil {
		data, err := io.ReadAll(p.body)
		if err != nil {
			return 0, err
		}
		if strict.Valid(data) == nil { // else it is for the SDK to say
			sanitized, err := sanitize(data)
			switch {
			case err != nil:
				p.limit.endConnection(err)
				return 0, err
			case sanitized != nil:
				data = sanitized
			}
		}
		p.whole = bytes.NewReader(data)
	}
	return p.whole.Read(b)
}

// events passes on a stream of server-sent events, without those that the limit
// holds back.
type events struct {
	body    io.ReadCloser
	src     *bufio.Reader
	limit   *flowLimit
	answers bool // it is the answer to a call

	out []byte // not handed out yet
	err error  // after out
}

func (e *events) Close() error { return e.body.Close() }

func (e *events) Read(p []byte) (int, error) {
	for len(e.out) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.out, e.err = e.next()
	}
	n := copy(p, e.out)
	e.out = e.out[n:]
	return n, nil
}

// next reads one event as it was written; empty if it is held back. One that the
// stream's end cuts off is lost.
func (e *events) next() ([]byte, error) {
	var raw, data []byte
	for {
		line, err := e.line(maxLine - len(raw))
		if err != nil {
			return nil, err
		}
		raw = append(raw, line...)
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, value...), '\n')
		}
	}
	answers := e.answers
	switch err := strict.Valid(data); {
	case len(bytes.TrimSpace(data)) == 0: // a comment, or the place in the stream
		data, answers = nil, false
	case err != nil:
		return nil, e.fail(fmt.Errorf("it sent an event that is no message: %w", err))
	}
	pass, err := e.limit.admit(data, answers)
	switch {
	case err != nil:
		return nil, e.fail(err)
	case !pass:
		return nil, nil
	}
	sanitized, err := sanitize(data)
	switch {
	case err != nil:
		return nil, e.fail(err)
	case sanitized != nil:
		return withData(raw, sanitized), nil
	default:
		return raw, nil
	}
}

// withData is an event with other data, which is JSON.
func withData(raw, data []byte) []byte {
	var out []byte
	for line := range bytes.Lines(raw) {
		if !bytes.HasPrefix(line, []byte("data:")) && len(bytes.TrimSpace(line)) > 0 {
			out = append(out, line...)
		}
	}
	out = append(out, "data: "...)
	out = append(out, bytes.ReplaceAll(bytes.TrimSpace(data), []byte("\n"), []byte(" "))...)
	return append(out, "\n\n"...)
}

func (e *events) fail(err error) error {
	e.limit.endConnection(err)
	return err
}

func (e *events) line(most int) ([]byte, error) {
	whole, err := readLine(e.src, most)
	if errors.Is(err, errMessageSize) {
		e.limit.endConnection(err)
	}
	return whole, err
}
