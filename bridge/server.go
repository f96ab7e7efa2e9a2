package bridge

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/page"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/tracing"
)

// target is what a path leads to.
type target struct {
	kind  targetKind
	agent string     // for toAgent and toEvents; valid as an id
	file  *page.File // what the path gives to anybody by GET; nil for nothing
}

type targetKind int

const (
	toNothing targetKind = iota
	toGlobal
	toAgent
	toEvents
	toHealth
	toReady
	toDocs
	toAllEvents
	toMetrics
	toFile
	toPageKey
)

// route finds the target of a raw path, asked for by a method: nothing is decoded, cleaned or
// redirected, so that what was checked is what is used.
func route(method, path string) target {
	if file, ok := page.Find(path); ok {
		kind := toFile
		if path == "/" && method != http.MethodGet && method != http.MethodHead {
			kind = toGlobal
		}
		return target{kind: kind, file: &file}
	}
	switch path {
	case "/rpc":
		return target{kind: toGlobal}
	case "/healthz":
		return target{kind: toHealth}
	case "/readyz":
		return target{kind: toReady}
	case "/events":
		return target{kind: toAllEvents}
	case "/docs":
		return target{kind: toDocs}
	case "/metrics":
		return target{kind: toMetrics}
	case "/page/key":
		return target{kind: toPageKey}
	}
	id, ok := strings.CutPrefix(path, "/agent/")
	if !ok {
		return target{}
	}
	kind := toAgent
	if name, events := strings.CutSuffix(id, "/events"); events {
		id, kind = name, toEvents
	}
	if !api.ValidAgentID(id) {
		return target{}
	}
	return target{kind: kind, agent: id}
}

func (t target) allows() []string {
	switch t.kind {
	case toGlobal, toAgent:
		if t.file != nil {
			return []string{http.MethodPost, http.MethodGet, http.MethodHead}
		}
		return []string{http.MethodPost}
	case toPageKey:
		return []string{http.MethodPost}
	case toEvents, toAllEvents, toMetrics:
		return []string{http.MethodGet}
	case toHealth, toReady, toDocs, toFile:
		return []string{http.MethodGet, http.MethodHead}
	default:
		return nil
	}
}

// exchange is one HTTP request on its way through the checks.
type exchange struct {
	w  http.ResponseWriter
	r  *http.Request
	rc *http.ResponseController
	// id is the request's id in the log and in X-Request-Id.
	id    string
	trace tracing.Parent // that the client named, and then that of the call; zero for none
	start time.Time
	to    targetKind
	// by is who asks, once the key was checked, and key what was presented; zero where the
	// body alone can show that it is known.
	by  rpc.Principal
	key auth.Key
	// probe says that the server asks itself: see Options.Probe.
	probe bool
	// whole says that there is no more of the body to read.
	whole bool

	mu  sync.Mutex // guards log.calls while the items of a batch run
	log logged
}

// requestIDs are those that a client may choose: they can stand in a line of a log and
// in a header.
var requestIDs = regexp.MustCompile(`^[A-Za-z0-9._~:/+=@-]{1,128}$`)

// httpRequestID is the id that the client, or a proxy before us, has given the request, or
// else a new one.
func httpRequestID(h http.Header) string {
	if ids := h.Values("X-Request-Id"); len(ids) == 1 && requestIDs.MatchString(ids[0]) {
		return ids[0]
	}
	return uuid.NewString()
}

// ServeHTTP runs the checks in the order of SPEC §6.1 and hands on what passes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c := connOf(r.Context()); c != nil {
		c.handling(true)
		defer c.handling(false)
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	to := route(r.Method, path)
	x := &exchange{w: w, r: r, rc: http.NewResponseController(w), id: httpRequestID(r.Header), start: time.Now(), to: to.kind}
	if parents := r.Header.Values("Traceparent"); len(parents) == 1 {
		if parent, ok := tracing.Parse(parents[0]); ok {
			x.r, x.trace = r.WithContext(tracing.With(r.Context(), parent)), parent
		}
	}
	x.whole = r.ContentLength == 0
	defer s.account(x)()
	w.Header().Set("X-Request-Id", x.id)
	w.Header().Set("Cache-Control", "no-store")
	if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
		// net/http has dropped a Content-Length beside chunks, and a Transfer-Encoding in
		// HTTP/1.0: whoever ended the body by those would see another request behind
		// this one, so nothing behind it is read.
		w.Header().Set("Connection", "close")
	}
	if !s.handlers.Enter() {
		s.refuse(x, draining)
		return
	}
	defer s.handlers.Leave()

	if r.ProtoMinor > 1 { // another major version is refused by net/http
		s.refuse(x, unknownVersion)
		return
	}
	if !strings.HasPrefix(r.RequestURI, "/") {
		s.refuse(x, badTarget)
		return
	}
	if !s.hosts[strings.ToLower(r.Host)] {
		s.refuse(x, badHost)
		return
	}
	if !s.checkOrigin(x, to) {
		return
	}
	if allowed := to.allows(); allowed != nil && !slices.Contains(allowed, r.Method) {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		s.refuse(x, badMethod)
		return
	}
	switch to.kind {
	case toHealth, toDocs, toFile, toPageKey:
		s.serveAnybody(x, to, query)
		return
	default: // needs a key
	}
	passed, refused, ok := s.checkKey(x, to)
	if !x.key.IsZero() {
		x.letIn(passed)
	}
	if !ok {
		s.refuse(x, refused)
		return
	}
	if to.kind == toGlobal || to.kind == toAgent {
		s.serveRPC(x, to)
		return
	}
	if refused, ok := s.checkRate(x, 1); !ok {
		s.refuse(x, refused)
		return
	}
	s.serveKeyed(x, to, query)
}

// serveAnybody answers what needs no key, and has no body.
func (s *Server) serveAnybody(x *exchange, to target, query string) {
	switch {
	case !x.whole:
		s.refuse(x, needlessBody)
	case to.kind == toHealth:
		s.health(x, query)
	case to.kind == toDocs:
		s.docs(x, query)
	case to.kind == toPageKey:
		s.pageKey(x)
	default:
		s.serveFile(x, *to.file)
	}
}

// serveKeyed answers a GET whose key is good for it.
func (s *Server) serveKeyed(x *exchange, to target, query string) {
	switch {
	case to.kind == toNothing:
		s.refuse(x, unknownPath)
	case !x.whole:
		s.refuse(x, needlessBody)
	case to.kind == toEvents, to.kind == toAllEvents:
		s.serveEvents(x, to.agent, query)
	case to.kind == toReady:
		s.ready(x)
	default:
		s.scrape(x)
	}
}

// readBody reads the whole body, within the bounds of size and time.
func (s *Server) readBody(x *exchange) ([]byte, rpc.Error, bool) {
	buf := make([]byte, 0, max(x.r.ContentLength, 0)+512)
	// What is packed is bounded as it comes, and again as it unfolds.
	body := http.MaxBytesReader(x.w, x.r.Body, MaxBody)
	if plain, known := unpacked(strings.Join(x.r.Header.Values("Content-Encoding"), ", "), body); known {
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
			return nil, bodyRefusal(err), false
		}
	}
}

func bodyRefusal(err error) rpc.Error {
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
	if _, known := unpacked(encoding, nil); !known {
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

// health answers GET /healthz, and a challenge in its query (SPEC §6.5).
func (s *Server) health(x *exchange, query string) {
	_ = x.rc.SetReadDeadline(time.Time{})
	health := api.Health{Status: "ok", Service: api.Service, Version: s.o.Version, SignaturesRequired: s.settings.Load().RequireSignatures}
	if s.requests.Closed() {
		health.Status = "draining"
	}
	if asked, err := url.ParseQuery(query); err != nil || asked.Has("challenge") {
		if err != nil || !auth.ValidNonce(asked.Get("challenge")) {
			s.refuse(x, badChallenge)
			return
		}
		if address, ok := x.r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			health.Proof, _ = s.o.Keys.Prove(asked.Get("key"), asked.Get("challenge"), address.String())
		}
	}
	body, err := json.Marshal(health)
	if err != nil {
		s.fail(x, err)
		return
	}
	s.answer(x, http.StatusOK, body)
}

// scrape answers GET /metrics (SPEC §6.10).
func (s *Server) scrape(x *exchange) {
	_ = x.rc.SetReadDeadline(time.Time{})
	_ = x.rc.SetWriteDeadline(time.Now().Add(s.o.WriteTimeout))
	s.metrics.ServeHTTP(x.w, x.r)
}

// serveFile answers with a file of the page.
func (s *Server) serveFile(x *exchange, file page.File) {
	_ = x.rc.SetReadDeadline(time.Time{})
	page.Head(x.w.Header())
	s.write(x, http.StatusOK, file.Type, file.Body)
}

// answer writes a response with a JSON body, packed if that is worth it and the
// client takes it.
func (s *Server) answer(x *exchange, status int, body []byte) {
	s.write(x, status, "application/json", body)
}

func (s *Server) write(x *exchange, status int, media string, body []byte) {
	_ = x.rc.SetWriteDeadline(time.Now().Add(s.o.WriteTimeout))
	h := x.w.Header()
	if x.by.Valid != nil && x.by.Valid.Err() != nil {
		h.Set("Connection", "close") // it ends with its key
	}
	h.Set("Content-Type", media)
	h.Add("Vary", "Accept-Encoding")
	// A client that left has no use for an error.
	if len(body) > minGzip && takes(x.r.Header.Values("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		x.w.WriteHeader(status)
		_ = writePacked(x.w, body)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body)
}

// refuse answers a request that did not get as far as its id. What has not come of
// its body is not waited for: the connection ends.
func (s *Server) refuse(x *exchange, r rpc.Error) {
	switch r.Status {
	case http.StatusUnauthorized:
		x.w.Header().Set("WWW-Authenticate", `Bearer realm="nexus"`)
	case http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestHeaderFieldsTooLarge, http.StatusHTTPVersionNotSupported:
		x.w.Header().Set("Connection", "close")
	}
	if !x.whole {
		x.w.Header().Set("Connection", "close")
		_ = x.rc.EnableFullDuplex()
	}
	s.answer(x, r.Status, jsonrpc.AppendResponse(nil, jsonrpc.Response{ID: jsonrpc.NullID, Error: r.Err}))
	x.recordRefusal(r)
	if !x.whole {
		x.linger()
	}
}

// linger is how long a client that was refused may go on sending.
const linger = 2 * time.Second

// linger ends the answer and takes in some more of the request: a client that is
// still sending would see a broken connection, and not what it was told.
func (x *exchange) linger() {
	_ = x.rc.Flush()
	if c := connOf(x.r.Context()); c != nil {
		_ = c.CloseWrite()
	}
	_ = x.rc.SetReadDeadline(time.Now().Add(linger))
	dropped := io.Reader(x.r.Body)
	if b, ok := dropped.(*body); ok {
		dropped = b.ReadCloser // it does not count as read
	}
	_, _ = io.CopyN(io.Discard, dropped, maxDiscard)
}

func (s *Server) fail(x *exchange, err error) {
	x.log.fault = fmt.Errorf("answer a request: %w", err)
	s.refuse(x, rpc.ToError(err))
}
