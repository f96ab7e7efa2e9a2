package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/tokencount"
	"nexus.internal/protocol/tracing"
)

const (
	// maxBody bounds a request, in bytes.
	maxBody = 32 << 20
	// maxErrorBody is how much of a service's error is passed on, in bytes.
	maxErrorBody = 64 << 10
	// dialTimeout bounds one try to reach a service.
	dialTimeout = 10 * time.Second
)

var dialer = &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}

func (sock *agentSocket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, _ := r.Context().Value(peerKey{}).(peer)
	if !sock.waitPermitted(r.Context(), p) {
		sock.warnOnce.Do(func() {
			sock.broker.log.Warn("a process that is not the agent asked for its model", zap.String("agent", sock.account.id), zap.Int("pid", p.pid))
		})
		refuse(403, "permission_error", "this socket is for the process of agent %s alone", sock.account.id).write(w)
		return
	}
	s, rest, paid, refused := sock.broker.route(r)
	switch {
	case refused != nil:
	case s.key == "" && s.auth != None && s.keyName == "":
		refused = refuse(424, "missing_key", `provider %q needs a key: name its environment variable as api_key_env in config.json, or set auth_method to "none"`, s.name)
	case s.key == "" && s.auth != None:
		refused = refuse(424, "missing_key", "provider %q needs a key: set the environment variable %s of the server and start it again", s.name, s.keyName)
	case r.ContentLength > maxBody:
		refused = errTooLarge
	default:
		refused = sock.broker.admit(sock.account, s, paid, r.Header.Get(protocol.ModelHeader))
	}
	if refused != nil {
		sock.broker.countRefused(s)
		if refused != errTooLarge { // who still writes might not read the answer
			_, _ = io.CopyN(io.Discard, r.Body, maxBody)
		}
		refused.write(w)
		return
	}
	x := &forwardedRequest{broker: sock.broker, account: sock.account, service: s, paid: paid, began: time.Now(), result: failed, answer: tokencount.Answer{Form: tokencount.EventStream}}
	x.run(w, r, rest)
}

// maxEvent bounds one event of an answer, or an answer that has none, in bytes. Tests lower
// it.
var maxEvent = 32 << 20

var errTooLong = refuse(502, "upstream_error", "the service sent an event of more than %d MiB", maxEvent>>20)

var errTooLarge = refuse(413, "request_too_large", "a request may have at most %d MiB", maxBody>>20)

// forwardedRequest is one request that was let in.
type forwardedRequest struct {
	broker  *Broker
	account *account
	service *service
	paid    bool
	program bool // it is of a program of another make
	began   time.Time

	body   countingBody
	answer tokencount.Answer
	used   Usage
	result result
	status int // of the service's answer; 0 if there is none
}

// run forwards the request and its answer, and accounts for both whatever ends
// them.
func (x *forwardedRequest) run(w http.ResponseWriter, r *http.Request, rest string) {
	defer func() {
		price, _ := x.service.price(x.body.model())
		x.used.Cost = x.used.costOf(price)
		x.broker.finish(x.account, x.service, x.result, x.used)
	}()
	parent, _ := tracing.Parse(r.Header.Get("Traceparent")) // of the turn, as its child says
	ctx, endSpan := x.broker.options.Trace.Begin(tracing.With(r.Context(), parent), tracing.Client, "model request",
		tracing.String("gen_ai.provider.name", x.service.name), tracing.String("nexus.agent.id", x.account.id))
	defer func() {
		fault := ""
		if x.result != answered {
			fault = x.result.String()
		}
		endSpan(fault, tracing.Int("http.response.status_code", int64(x.status)),
			tracing.Int("gen_ai.usage.input_tokens", int64(x.used.Input+x.used.CacheRead+x.used.CacheCreation)), tracing.Int("gen_ai.usage.output_tokens", int64(x.used.Output)))
	}()
	x.program = r.Header.Get(protocol.ProgramHeader) != ""
	x.body.of, x.body.body = x, http.MaxBytesReader(nil, r.Body, maxBody)
	out := &http.Request{
		Method: r.Method, URL: x.service.target(rest, r.URL.RawQuery), Header: x.service.header(r.Header),
		ContentLength: r.ContentLength, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if x.paid {
		out.Header.Set("Content-Type", "application/json") // as which it is judged
	}
	out.Header.Del("Tracestate") // it would belong to another traceparent
	out.Header.Del("Traceparent")
	if trace := tracing.From(ctx).String(); trace != "" {
		out.Header.Set("Traceparent", trace)
	}
	if r.ContentLength != 0 {
		out.Body = &x.body
		defer func() { _ = x.body.Close() }() // who reads it must have stopped when we return
	}
	res, err := x.broker.transport.RoundTrip(out.WithContext(r.Context()))
	if err != nil {
		x.unreachable(w, r, err)
		return
	}
	defer res.Body.Close()
	x.status = res.StatusCode
	log := x.broker.log.With(zap.String("agent", x.account.id), zap.String("provider", x.service.name), zap.Int("status", res.StatusCode))
	switch {
	case res.StatusCode < 200 || res.StatusCode > 599:
		refuse(502, "upstream_error", "provider %s answered with status %d, which HTTP does not know", x.service.name, res.StatusCode).write(w)
	case res.StatusCode/100 == 3:
		log.Warn("a service redirects, which is not followed")
		refuse(502, "upstream_error", "provider %s answered with a redirect (%d), which is not followed: correct its base_url", x.service.name, res.StatusCode).write(w)
	case res.StatusCode == http.StatusUnauthorized && x.service.auth == None:
		log.Warn("a service wants a key, and has none")
		refuse(401, "authentication_error", `provider %s wants a key, and its auth_method "none" sends none: name the environment variable of the key as api_key_env in config.json`, x.service.name).write(w)
	case res.StatusCode == http.StatusUnauthorized:
		// What a service says here holds a part of the key.
		log.Warn("a service refused its key", zap.String("variable", x.service.keyName))
		refuse(401, "authentication_error", "provider %s refused the key that the server has for it", x.service.name).write(w)
	case res.StatusCode/100 != 2:
		x.passError(w, res)
	case res.Header.Get("Content-Encoding") != "" && res.Header.Get("Content-Encoding") != "identity":
		refuse(502, "upstream_error", "provider %s answered in an encoding that nobody asked for", x.service.name).write(w)
	default:
		x.stream(w, r, res)
	}
	log.Debug("request", zap.Duration("took", time.Since(x.began)), zap.Uint64("tokens", x.used.Tokens()))
}

// unreachable answers where no answer came.
func (x *forwardedRequest) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil { // the child has left; what it asked was perhaps answered
		x.result = abandoned
		if asked, whole := x.body.tokens(); x.paid && whole {
			x.used = usageOf(x.answer.Count(asked))
		}
		panic(http.ErrAbortHandler) // to return would be to answer 200
	}
	if refused, ok := errors.AsType[*refusal](err); ok {
		refused.write(w)
		return
	}
	x.result = unreachable
	level := zap.DebugLevel // its list of models is asked for whether or not an agent uses it
	if x.paid {
		level = zap.WarnLevel
	}
	x.broker.log.Log(
		level, "a service cannot be reached", zap.String("agent", x.account.id), zap.String("provider", x.service.name),
		zap.String("reason", redact.ScrubError(err)),
	)
	refuse(502, "upstream_unreachable", "provider %s cannot be reached: %s", x.service.name, x.service.secrets.Text(withoutURL(err))).write(w)
}

// withoutURL is an error without the URL that it is about.
func withoutURL(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "it took too long"
	}
	return err.Error()
}

// passError passes on a service's error.
func (x *forwardedRequest) passError(w http.ResponseWriter, res *http.Response) {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil && len(body) == 0 {
		body = []byte("the service broke off its answer")
	}
	text := x.service.secrets.Text(string(body))
	x.setHeaders(w, res.Header)
	w.WriteHeader(res.StatusCode)
	_, _ = io.WriteString(w, text) // who has left needs no answer
}

// setHeaders sets the headers of the answer.
func (x *forwardedRequest) setHeaders(w http.ResponseWriter, from http.Header) {
	for name, values := range from {
		if passesHeader(name) {
			for _, value := range values {
				w.Header().Add(name, x.service.secrets.Text(value))
			}
		}
	}
}

// buffers are for answers that pass.
var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// stream passes an answer on as it comes. One that breaks off breaks off for
// the child, too. If the model had ended its answer by then, it counts as
// answered: a child that has it leaves without waiting for the end of the stream.
func (x *forwardedRequest) stream(w http.ResponseWriter, r *http.Request, res *http.Response) {
	if x.paid {
		x.answer.Form = tokencount.FormOf(res.Header.Get("Content-Type"))
		defer func() {
			asked, _ := x.body.tokens()
			x.used = usageOf(x.answer.Count(asked))
			// A service may take a request for one of a stream that does not say so.
			if x.answer.Form == tokencount.EventStream && x.answer.Uncounted() && !x.body.asked() {
				x.service.silent.Store(true)
			}
		}()
		if refused := x.broker.admitAnswer(x); refused != nil {
			refused.write(w)
			return
		}
	}
	x.setHeaders(w, res.Header)
	w.WriteHeader(res.StatusCode)
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		x.result = abandoned
		return
	}
	brokenOff := func(why result) {
		if x.result = why; x.answer.Whole() {
			x.result = answered
		}
	}
	errs := errorScrubber{secrets: x.service.secrets}
	red := redact.NewStream(x.service.secrets)
	buf := buffers.Get().(*[16 << 10]byte)
	defer buffers.Put(buf)
	for {
		n, err := res.Body.Read(buf[:])
		_, _ = x.answer.Write(buf[:n])
		if out := red.Next(errs.next(buf[:n])); len(out) > 0 {
			if _, err := w.Write(out); err != nil || flush() != nil {
				brokenOff(abandoned)
				return
			}
		}
		switch {
		case errs.size > maxEvent: // of an error, the child gets only the beginning, so it sees no length
			x.broker.log.Warn("a service sent an event that is too long", zap.String("agent", x.account.id), zap.String("provider", x.service.name))
			_, _ = w.Write(red.Rest())
			_, _ = fmt.Fprintf(w, "\n\nevent: error\ndata: %s\n\n", errTooLong.body())
			return
		case errors.Is(err, io.EOF):
			if !x.paid || x.answer.Whole() || x.answer.Form == tokencount.JSON {
				x.result = answered
			}
			_, _ = w.Write(red.Next(errs.rest()))
			_, _ = w.Write(red.Rest())
			return
		case err != nil:
			brokenOff(failed)
			if r.Context().Err() != nil { // the child has left
				brokenOff(abandoned)
			}
			panic(http.ErrAbortHandler)
		}
	}
}

// countingBody is a request's body as the transport reads it, which may go on until
// Close returns. One that the service may not get breaks off before its end.
type countingBody struct {
	of   *forwardedRequest
	body io.ReadCloser

	mu       sync.Mutex // guards all below
	count    tokencount.Request
	complete bool
}

func (q *countingBody) Read(p []byte) (int, error) {
	n, err := q.body.Read(p)
	if refused := q.judge(p[:n], err); refused != nil {
		_, _ = io.Copy(io.Discard, q.body) // who still writes might not read the answer
		return 0, refused
	}
	return n, err
}

// judge takes the next bytes and the error after them, and says why the service may not get them; nil if it may.
func (q *countingBody) judge(p []byte, after error) *refusal {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, _ = q.count.Write(p)
	q.complete = q.complete || errors.Is(after, io.EOF)
	_, long := errors.AsType[*http.MaxBytesError](after)
	switch err := q.count.Err(); {
	case long:
		return errTooLarge
	case !q.of.paid:
	case err != nil:
		return refuse(400, "invalid_request_error", "%s", err)
	case q.count.Whole():
		if refused := q.of.broker.admitStream(q.of, &q.count); refused != nil {
			return refused
		}
		return q.of.broker.admitModel(q.of.account, q.of.service, &q.count)
	case q.complete:
		return refuse(400, "invalid_request_error", "the request is no JSON object: it has no end")
	}
	return nil
}

func (q *countingBody) Close() error { return q.body.Close() }

// model is the one that the request is to, as far as it was read.
func (q *countingBody) model() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count.Model()
}

// asked reports whether the request asks for the usage of a stream.
func (q *countingBody) asked() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count.Whole() && q.count.Asked()
}

// tokens estimates those that were read; whole says that this was all.
func (q *countingBody) tokens() (n uint64, whole bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count.Tokens(), q.complete
}
