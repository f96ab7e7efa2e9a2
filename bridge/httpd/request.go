package httpd

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/suggest"
	"nexus.internal/protocol/tracing"
)

// request is one HTTP request on its way through the checks, with its answer.
type request struct {
	w  http.ResponseWriter
	r  *http.Request
	rc *http.ResponseController
	// id is the request's id in the log and in X-Request-Id.
	id    string
	trace tracing.Parent // that the client named, and then that of the call; zero for none
	start time.Time
	to    routeKind
	// by is who asks, once the key was checked, and key what was presented; zero where the
	// body alone can show that it is known.
	by  rpc.Principal
	key auth.Key
	// machine is the one that has passed the request on; "" if a client has sent it.
	machine string
	// probe says that the server asks itself: see Options.Probe.
	probe bool
	// whole says that there is no more of the body to read.
	whole bool
	log   logFacts
	// values are those of the answer's headers that set has set.
	values  [8]string
	headers int // how many of values are used
	// share is what the calls hold of the server's Budget; nil if they need none.
	share *rpc.Share
}

// newRequest is a request that has arrived, where its path leads, and its query.
func newRequest(w http.ResponseWriter, r *http.Request) (x *request, to route, query string) {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	to = parseRoute(r.Method, path)
	x = &request{w: w, r: r, rc: http.NewResponseController(w), id: httpRequestID(r.Header), start: time.Now(), to: to.kind}
	if parents := r.Header.Values("Traceparent"); len(parents) == 1 {
		if parent, ok := tracing.Parse(parents[0]); ok {
			x.r, x.trace = r.WithContext(tracing.With(r.Context(), parent)), parent
		}
	}
	x.whole = r.ContentLength == 0
	x.set("X-Request-Id", x.id)
	x.set("Cache-Control", "no-store")
	return x, to, query
}

// set sets a header of the answer, by its canonical name.
func (x *request) set(name, value string) {
	if x.headers == len(x.values) {
		x.w.Header()[name] = []string{value}
		return
	}
	i := x.headers
	x.headers++
	x.values[i] = value
	x.w.Header()[name] = x.values[i : i+1 : i+1]
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

// answer writes a response with a JSON body, packed if that is worth it and the
// client takes it.
func (s *Server) answer(x *request, status int, parts ...[]byte) {
	s.write(x, status, "application/json", parts...)
}

// write writes a response, whose body is in parts. The body is packed before anything is
// written: a gzip writer has a megabyte, which a client that does not read would keep.
func (s *Server) write(x *request, status int, media string, parts ...[]byte) {
	h := x.w.Header()
	if x.by.Valid != nil && x.by.Valid.Err() != nil {
		h.Set("Connection", "close") // it ends with its key
	}
	x.set("Content-Type", media)
	h.Add("Vary", "Accept-Encoding")
	size := sizeOf(parts)
	if size > minGzip && accepts(x.r.Header.Values("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		x.share.Work(func() { parts = [][]byte{pack(parts)} })
		packed := sizeOf(parts)
		x.share.Add(min(packed-size, 0))
		size = packed
	}
	x.set("Content-Length", strconv.Itoa(size))
	_ = x.rc.SetWriteDeadline(time.Now().Add(s.o.WriteTimeout))
	x.w.WriteHeader(status)
	for _, part := range parts {
		if _, err := x.w.Write(part); err != nil {
			return // a client that left has no use for an error
		}
	}
}

func sizeOf(parts [][]byte) (size int) {
	for _, part := range parts {
		size += len(part)
	}
	return size
}

// refuse answers a request whose JSON-RPC id is not known. If its body has not arrived
// whole, the server does not wait for the rest: the connection ends, and the rest is dropped.
func (s *Server) refuse(x *request, r *rpc.Error) {
	x.tellMoved(r.Moved)
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
	x.noteRefusal(r)
	if c := connOf(x.r.Context()); c != nil && !x.whole {
		c.hangUp()
	}
}

// fail answers a request that went wrong in the server, and logs why.
func (s *Server) fail(x *request, err error) {
	x.log.fault = fmt.Errorf("answer a request: %w", err)
	s.refuse(x, new(rpc.ToError(err)))
}

// readQuery reads a query that may have the members named, each of them once.
func readQuery(query string, members ...string) (values url.Values, refused *rpc.Error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, badQuery("Invalid query: want NAME=VALUE&…", "Escape what is not a letter or digit.")
	}
	way := "Leave out the query."
	if len(members) > 0 {
		way = "Known are: " + strings.Join(members, ", ") + "."
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(members, name):
			if near := suggest.Nearest(name, members); near != "" {
				way += " Did you mean " + near + "?"
			}
			return nil, badQuery("Unknown parameter: "+rpc.ClipName(name), way)
		case len(values[name]) > 1:
			return nil, badQuery("Invalid parameter "+name+": stands twice", "Name it once.")
		}
	}
	return values, nil
}

func badQuery(message, way string) *rpc.Error {
	return apiError(http.StatusBadRequest, jsonrpc.CodeInvalidParams, message, api.KindInvalidParams, message, way)
}
