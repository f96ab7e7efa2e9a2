package modelgate

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/accept"
	"nexus.internal/protocol/tokencount"
)

const (
	// maxHeader bounds the headers of a request, in bytes.
	maxHeader = 64 << 10
	// headerTimeout is how long they may take, from the begin of the connection for its first request, which shows the
	// token; idleTimeout is how long a connection of the program may be kept without a request.
	headerTimeout = 5 * time.Second
	idleTimeout   = 90 * time.Second
	// maxBody bounds a request, in bytes, as the broker does.
	maxBody = 32 << 20
	// maxBefore is how much of a request is read in search of its model, in bytes.
	maxBefore = 1 << 20
)

// Options say whose models a gate leads to.
type Options struct {
	// Provider is the provider's name at the broker, Type its type, and Protocol that of the program.
	Provider, Type, Protocol string
	// Broker reaches the broker, whatever the host.
	Broker http.RoundTripper
	Log    *zap.Logger // may be nil
}

// Gate implements sandbox.Service.
type Gate struct {
	options Options
	dialect dialect
	token   string
	proxy   *httputil.ReverseProxy
}

// New returns a Gate with a token of its own. The error says why such a program cannot be given these
// models.
func New(o Options) (*Gate, error) {
	d, err := find(o.Provider, o.Type, o.Protocol)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	g := &Gate{options: o, dialect: d, token: "nexus-" + rand.Text() + rand.Text()}
	g.proxy = &httputil.ReverseProxy{
		Rewrite: g.rewrite, Transport: o.Broker, FlushInterval: -1,
		ErrorLog: zap.NewStdLog(o.Log.Named("http")), ErrorHandler: g.unanswered,
	}
	return g, nil
}

// Tell is what a program is told that finds the gate at address.
func (g *Gate) Tell(address string) (env, arguments []string) {
	base := "http://" + address
	return environment(g.options.Type, g.options.Protocol, base, g.token), protocol.ModelArguments(g.options.Protocol, base)
}

// Serve serves the connections that come to a listening socket until ctx ends, closes it, and returns
// when nothing of them is left.
func (g *Gate) Serve(ctx context.Context, socket *os.File) {
	ln, err := net.FileListener(socket)
	socket.Close()
	if err != nil {
		g.options.Log.Warn("serve models to a program", zap.Error(err))
		return
	}
	g.serve(ctx, ln)
}

func (g *Gate) serve(ctx context.Context, ln net.Listener) {
	// A request whose body is not read to its end does not see that its connection is closed.
	requests, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup // of connections; Add only until Serve has returned
	server := &http.Server{
		Handler: g, DisableGeneralOptionsHandler: true, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: zap.NewStdLog(g.options.Log.Named("http")), ConnContext: withConn,
		BaseContext: func(net.Listener) context.Context { return requests },
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				running.Add(1)
			case http.StateClosed, http.StateHijacked:
				running.Done()
			case http.StateActive, http.StateIdle:
			}
		},
	}
	var closing sync.WaitGroup
	closing.Go(func() {
		<-requests.Done()
		_ = server.Close()
	})
	_ = server.Serve(newConnLimiter(accept.Retry(ln, g.options.Log))) // ends with ctx
	cancel()
	closing.Wait()
	running.Wait()
}

// takeBody reads what a refused request of the program brings: a connection that is closed with bytes unread is reset,
// and then the program may not see the answer. A program that is slow with it keeps a connection of its own.
func takeBody(r *http.Request) { _, _ = io.CopyN(io.Discard, r.Body, maxBody) }

// turnAway refuses a request whose connection may not stay: it is answered before its body has come, and the connection
// ends then. For dropTime what is on its way is taken, for the same reason.
func turnAway(w http.ResponseWriter, r *http.Request, status int, kind, format string, args ...any) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // else the server reads of the body before it answers
	_ = control.SetReadDeadline(time.Now().Add(dropTime))
	w.Header().Set("Connection", "close")
	refuse(w, status, kind, format, args...)
	_ = control.Flush() // or nobody waits for it
	takeBody(r)
}

// ServeHTTP answers one request of the program.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "v1/")
	switch encoding := r.Header.Get("Content-Encoding"); {
	case !g.knows(r):
		turnAway(w, r, http.StatusUnauthorized, "authentication_error", "this is the way of one agent to its models, and the token is not that agent's")
	case !authenticate(r.Context()):
		turnAway(w, r, http.StatusTooManyRequests, "rate_limit_error", "a program may have %d connections to its models at once", maxConnections)
	case !g.dialect.takes(r.Method, path):
		takeBody(r)
		refuse(w, http.StatusNotFound, "unknown_endpoint", "provider %s is of type %s, so it is spoken to by %s: POST %s, and GET models",
			g.options.Provider, g.options.Type, g.dialect.name, strings.Join(g.dialect.posts, ", "))
	case encoding != "" && encoding != "identity":
		takeBody(r)
		refuse(w, http.StatusUnsupportedMediaType, "invalid_request_error", "a request in the encoding %.32q cannot be counted: send it as it is", encoding)
	case r.ContentLength > maxBody:
		refuse(w, http.StatusRequestEntityTooLarge, "request_too_large", "a request may have at most %d MiB", maxBody>>20)
	default:
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		model, err := peekModel(r)
		if err == nil && model != "" {
			err = protocol.CheckModelName(model)
		}
		if err != nil {
			takeBody(r)
			refuse(w, http.StatusBadRequest, "invalid_request_error", "%s", err)
			return
		}
		r.Header.Del(protocol.ModelHeader) // what it asks for decides, not what it says
		if model != "" {
			r.Header.Set(protocol.ModelHeader, model)
		}
		r.Header.Set(protocol.ProgramHeader, "1")
		g.proxy.ServeHTTP(w, r)
	}
}

// knows reports whether a request has the token.
func (g *Gate) knows(r *http.Request) bool {
	given := append([]string{r.URL.Query().Get("key")}, r.Header.Values("X-Api-Key")...)
	given = append(given, r.Header.Values("X-Goog-Api-Key")...)
	given = append(given, r.Header.Values("Api-Key")...)
	for _, value := range r.Header.Values("Authorization") {
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
			given = append(given, strings.TrimSpace(token))
		}
	}
	known := 0
	for _, token := range given {
		known |= subtle.ConstantTimeCompare([]byte(token), []byte(g.token))
	}
	return known == 1
}

// peekModel is the model that a request is to, if it names it early; the error says what is wrong with it so far, for the
// program. The body is as it was. The broker judges the whole of it as it passes.
func peekModel(r *http.Request) (string, error) {
	var seen bytes.Buffer
	var count tokencount.Request
	body, chunk := r.Body, make([]byte, 8<<10)
	for seen.Len() < maxBefore && count.Model() == "" && count.Err() == nil {
		n, err := body.Read(chunk)
		seen.Write(chunk[:n])
		_, _ = count.Write(chunk[:n])
		if err != nil {
			break // the next read says it again
		}
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&seen, body), body}
	return count.Model(), count.Err()
}

// passedHeaders and passedQuery are what services need of a request beside its body. Others would go with the server's
// key: they choose another account that pays, or in a proxy of models another model.
var (
	passedHeaders = []string{"Accept", "Anthropic-Beta", "Anthropic-Version", "Openai-Beta", "Traceparent", "User-Agent", protocol.ModelHeader, protocol.ProgramHeader}
	passedQuery   = []string{"after_id", "before_id", "beta", "limit"}
)

// rewrite turns a request of the program's into one of the broker.
func (g *Gate) rewrite(p *httputil.ProxyRequest) {
	path := strings.TrimPrefix(strings.TrimPrefix(p.In.URL.EscapedPath(), "/"), "v1/")
	query := p.In.URL.Query()
	maps.DeleteFunc(query, func(name string, _ []string) bool { return !slices.Contains(passedQuery, name) })
	// It is a path of ours, or one of models: both are plain.
	p.Out.URL = &url.URL{
		Scheme: "http", Host: "broker", Path: "/" + g.options.Provider + "/" + g.dialect.version + path,
		RawPath: "/" + url.PathEscape(g.options.Provider) + "/" + g.dialect.version + path, RawQuery: query.Encode(),
	}
	p.Out.Host = ""
	maps.DeleteFunc(p.Out.Header, func(name string, _ []string) bool { return !slices.Contains(passedHeaders, name) })
}

// unanswered tells the program that no answer came from the broker.
func (g *Gate) unanswered(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody waits for it any more
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		refuse(w, http.StatusRequestEntityTooLarge, "request_too_large", "a request may have at most %d MiB", maxBody>>20)
		return
	}
	g.options.Log.Warn("the broker does not answer a program", zap.Error(err))
	refuse(w, http.StatusBadGateway, "upstream_error", "the server that has the models does not answer")
}

// refuse answers in the form that all dialects use: {"error":{"type","message"}}.
func refuse(w http.ResponseWriter, status int, kind, format string, args ...any) {
	// What is not UTF-8 is replaced.
	body, _ := jsontext.AppendQuote([]byte(`{"type":"error","error":{"type":"`+kind+`","message":`), fmt.Sprintf(format, args...))
	body = append(body, "}}"...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // or nobody waits for it
}
