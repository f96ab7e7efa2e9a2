package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/homelock"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/safefile"
)

const (
	// maxText is the longest answer of an agent, in bytes (SPEC §7). JSON may
	// write a byte of it as six.
	maxText     = 8 << 20
	maxAnswer   = 6*maxText + 1<<20 // bytes of a response's body
	maxEvent    = maxAnswer         // bytes of one line of an event stream, which may be a response
	dialTimeout = 5 * time.Second
)

// Options say which server to call. URL, if set, is its base and wins over
// Port.
type Options struct {
	// URL is as in http://127.0.0.1:8765, or several as CheckURLs reads them, of machines that are one: where one is not to be had, the
	// next is called.
	URL  string
	Port int // on 127.0.0.1; 0 means that of DefaultPort, with the home of Lookup
	// CA is a file with the authorities by which servers at https are known, as PEM; "" for those that the system knows.
	CA string
	// Key is sent, at each address of URL, once the server has proved that it has it. Without one, it is
	// looked for by Lookup, and again where the server turns out to have another:
	// each server makes its own. Of a URL at https, no key file of the home is read, as these are of its own server; of one at http,
	// Lookup.Port may be 0 for its port.
	Key    auth.Key
	Lookup *auth.Lookup
	// Moves says that the server of the home of Lookup is meant, wherever it listens: where
	// it listens no more, the home's lock is asked again. It is so without URL, Port and
	// NEXUS_PORT.
	Moves bool
	// Sign has each request signed (SPEC §6.5): Health.SignaturesRequired of a Finding.
	// Without it, requests are signed once the server has refused one that was not.
	Sign bool
	// Retries is how often a request that may be repeated is tried again: 0 means
	// DefaultRetries, and more with several addresses; below 0 never. One address after the other is one try.
	Retries int
	// Dialer connects to the server; nil is a net.Dialer. A server in a network namespace of its own is reached by one.
	Dialer Dialer
}

// Dialer makes connections, as net.Dialer does. It is safe for concurrent use.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Client calls one server.
type Client struct {
	place   atomic.Pointer[place]
	bases   []string // of all addresses, without a slash at their ends
	home    string   // whose server is meant, wherever it listens; "" for the one at base
	keys    *keys
	retries int
	lastID  atomic.Int64
	signs   atomic.Bool // the server wants requests signed
	reached atomic.Bool // a server has answered
	silent  atomic.Bool // it has not, to the last try of what is tried again
	stale   atomic.Pointer[string]
}

// New returns a client. It calls nobody yet. A URL that is neither https nor http on a
// loopback address is an error: the key would leave the machine unencrypted. So is a Lookup
// that finds no key that can be used, and a CA that cannot be read.
func New(o Options) (*Client, error) {
	base := o.URL
	if base == "" {
		port := o.Port
		if port == 0 {
			home := ""
			if o.Lookup != nil {
				home = o.Lookup.Home
			}
			given := os.Getenv("NEXUS_PORT")
			var err error
			if port, err = DefaultPort(given, home); err != nil {
				return nil, err
			}
			o.Moves = given == "" && home != ""
		}
		base = "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	bases, err := CheckURLs(base)
	if err != nil {
		return nil, err
	}
	pool, err := authorities(o.CA)
	if err != nil {
		return nil, err
	}
	held, err := newKeys(o.Key, lookupAt(o.Lookup, bases), dialing{authorities: pool, file: o.CA, several: len(bases) > 1, by: o.Dialer})
	if err != nil {
		return nil, err
	}
	c := &Client{keys: held, retries: o.Retries, bases: bases}
	c.place.Store(&place{base: bases[0]})
	if o.Moves {
		c.home = o.Lookup.Home
	}
	c.signs.Store(o.Sign)
	switch {
	case c.retries == 0 && len(bases) > 1:
		c.retries = retriesOfSeveral
	case c.retries == 0:
		c.retries = DefaultRetries
	}
	return c, nil
}

// FromEnvironment returns a client of the server that is meant where none is named, by
// environ (KEY=VALUE): the one at NEXUS_SERVER (as Options.URL, with NEXUS_CA as Options.CA), else at NEXUS_PORT, else that of the home
// (NEXUS_HOME, else ~/.nexus3), else the one at auth.DefaultPort; with the key in NEXUS3_API_KEY, else the one
// in the home, unless NEXUS_SERVER is at https. Errors as those of New.
func FromEnvironment(environ []string) (*Client, error) {
	home, err := safefile.HomeOf(environ)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	if env["NEXUS_SERVER"] != "" {
		return New(Options{URL: env["NEXUS_SERVER"], CA: env["NEXUS_CA"], Lookup: &auth.Lookup{Env: env["NEXUS3_API_KEY"], Home: home}})
	}
	port, err := DefaultPort(env["NEXUS_PORT"], home)
	if err != nil {
		return nil, err
	}
	return New(Options{Port: port, Moves: env["NEXUS_PORT"] == "", Lookup: &auth.Lookup{Env: env["NEXUS3_API_KEY"], Home: home, Port: port}})
}

// DefaultPort is where the server is that is meant where none is named: given, which is
// what NEXUS_PORT says, else where the server of the home listens, else
// auth.DefaultPort. Either may be "". The error is that of a port that is none.
func DefaultPort(given, home string) (int, error) {
	if given != "" {
		port, err := strconv.Atoi(given)
		if err != nil || port < 1 || port > 65535 {
			return 0, fmt.Errorf("NEXUS_PORT must be from 1 to 65535, not %q", given)
		}
		return port, nil
	}
	if home != "" {
		server, err := homelock.Find(home)
		if err != nil {
			return 0, err
		}
		if server.Runs && server.Port > 0 {
			return server.Port, nil
		}
	}
	return auth.DefaultPort, nil
}

// transport reaches servers directly: no proxy may see the key.
func transport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
}

// URL is the server's base, without a slash at its end. It changes where the server of a home
// that is meant (Options.Moves) is found elsewhere, and where another address is called.
func (c *Client) URL() string { return c.place.Load().base }

// Silent reports whether a connection broke or could not be had, and the server has answered no
// request since: what could not be done is tried again meanwhile.
func (c *Client) Silent() bool { return c.silent.Load() }

// Stale is since when, in RFC 3339, what was answered last as such may be old: that machine of a cluster did not reach a majority of the others. It is
// api.StaleNever if that machine has not reached one since it started, and "" if no answer was old.
func (c *Client) Stale() string {
	if since := c.stale.Load(); since != nil {
		return *since
	}
	return ""
}

// TakeStale is Stale for what was answered since the last TakeStale.
func (c *Client) TakeStale() string {
	if since := c.stale.Swap(nil); since != nil {
		return *since
	}
	return ""
}

// Close drops connections that are kept for later calls.
func (c *Client) Close() { c.keys.now().http.CloseIdleConnections() }

// RPCError is a failure that the server reports.
type RPCError struct {
	Code    int    // of JSON-RPC (SPEC §6.2)
	Message string // for people
	// Data says more; its zero value where the server did not.
	Data jsonrpc.ErrorData
	// HTTPStatus is the status that the response came with.
	HTTPStatus int
	// RetryAfter is how long the server asks to wait; 0 if it does not.
	RetryAfter time.Duration
}

// Error is the message and, where they add something, the details.
func (e *RPCError) Error() string { return jsonrpc.Reason(e.Message, e.Data.Details) }

// KindOf is the kind of an error that a server reports; "" for another error, and where the
// server did not say.
func KindOf(err error) api.ErrorKind {
	if e, ok := errors.AsType[*RPCError](err); ok {
		return api.ErrorKind(e.Data.Type)
	}
	return ""
}

// ErrNoServer says that nothing listens there. The request was not sent.
var ErrNoServer = errors.New("no server runs")

// ErrNotNexus says that what answered is no nexus server.
var ErrNotNexus = errors.New("the answer is not a nexus server's")

// RootPath is where global methods are called.
const RootPath = "/rpc"

const agentPrefix = "/agent/"

// AgentPath is where the methods of an agent are called. A call there is refused
// with an *api.ParamError, and nothing is sent, where id cannot be the name of an
// agent (api.ValidAgentID).
func AgentPath(id string) string { return agentPrefix + url.PathEscape(id) }

// checkPath finds an AgentPath of what cannot be the name of an agent.
func checkPath(path string) error {
	name, ofAgent := strings.CutPrefix(path, agentPrefix)
	if !ofAgent {
		return nil
	}
	id, err := url.PathUnescape(name)
	if err != nil {
		id = name
	}
	return api.CheckAgentID(id)
}

// Call calls a method. params is a struct or map, nil for none; result is a
// pointer that the result is decoded into, nil to ignore it. Unknown members
// of the result are ignored. ctx bounds the call; a send goes on without its
// caller.
//
// A method that only reads, or that takes a request_id and does no work twice
// under it, is tried again where the connection broke or the server had no time
// (HTTP 429, 503). A request_id that is missing is made, once for all tries.
func (c *Client) Call(ctx context.Context, path, method string, params, result any) error {
	raw, repeatable, err := encode(method, params)
	if err != nil {
		return err
	}
	return c.again(ctx, repeatable, func() error {
		response, err := c.post(ctx, path, method, raw, "application/json")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		return finish(ctx, method, response, result)
	})
}

// finish reads a response that is not a stream.
func finish(ctx context.Context, method string, response *http.Response, result any) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("call %s: read the answer: %w", method, broken(ctx, err))
	}
	if len(body) > maxAnswer {
		return fmt.Errorf("call %s: the answer is longer than %d bytes", method, maxAnswer)
	}
	err = decode(method, body, response.StatusCode, result)
	if e, ok := errors.AsType[*RPCError](err); ok {
		e.RetryAfter = cmp.Or(retryAfter(response.Header), time.Duration(e.Data.RetryAfterS*float64(time.Second)))
	}
	return err
}

func decode(method string, body []byte, status int, result any) error {
	answer, err := jsonrpc.DecodeResponse(body)
	if err != nil {
		return fmt.Errorf("call %s: %w (HTTP status %d): %w", method, ErrNotNexus, status, err)
	}
	if answer.Error != nil {
		e := &RPCError{Code: int(answer.Error.Code), Message: answer.Error.Message, HTTPStatus: status}
		if answer.Error.Data != nil {
			e.Data = *answer.Error.Data
		}
		return e
	}
	if result == nil {
		return nil
	}
	if raw, ok := result.(*jsontext.Value); ok {
		*raw = answer.Result
		return nil
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("call %s: decode the result: %w", method, err)
	}
	return nil
}

func (c *Client) post(ctx context.Context, path, method string, params jsontext.Value, accept string) (*http.Response, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	request := jsonrpc.Request{Method: method, ID: jsonrpc.NumberID(c.lastID.Add(1)), Params: params}
	signed := c.signs.Load()
	if signed {
		request.Auth = c.signature(path, request)
	}
	body, err := jsonrpc.AppendRequest(nil, request)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", method, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL()+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", method, err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", accept)
	response, err := c.do(r, method)
	if err == nil && !signed && c.mustSign(response) {
		return c.post(ctx, path, method, params, accept)
	}
	return response, err
}

func (c *Client) do(r *http.Request, what string) (*http.Response, error) {
	as := c.keys.now()
	if !as.key.IsZero() {
		r.Header.Set("Authorization", "Bearer "+as.key.Reveal())
	}
	response, err := as.http.Do(r)
	if errors.Is(err, syscall.ECONNREFUSED) {
		start := ""
		if r.URL.Scheme == "http" {
			start = "start one with nexus serve: "
		}
		err = fmt.Errorf("%w at %s://%s: %s%w", ErrNoServer, r.URL.Scheme, r.URL.Host, start, err)
	}
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", what, broken(r.Context(), err))
	}
	c.reached.Store(true)
	c.silent.Store(false)
	if since := response.Header.Get(api.StaleHeader); since != "" {
		c.stale.Store(&since)
	}
	return response, nil
}

// Do calls the method of a row, at the agent of that name; agent is "" for a method
// that is called globally. It tries again as Call does.
//
//	created, err := client.Do(ctx, c, "", api.CreateAgent, api.CreateAgentParams{})
//	tokens, err := client.Do(ctx, c, created.AgentID, api.GetTokens, api.None{})
func Do[P, R any](ctx context.Context, c *Client, agent string, method api.Def[P, R], params P) (result R, err error) {
	err = c.Call(ctx, pathOf(method.Scope, agent), method.Name, params, &result)
	return result, err
}

func pathOf(scope api.Scope, agent string) string {
	if scope == api.Global || scope == api.Both && agent == "" {
		return RootPath
	}
	return AgentPath(agent)
}

// maxReady bounds what is read of GET /readyz, in bytes.
const maxReady = 1 << 20

// Metrics are what the server measures, in Prometheus's text format (SPEC §6.7), at most 8 MiB.
func (c *Client) Metrics(ctx context.Context) (text string, err error) {
	err = c.anywhere(ctx, func() (err error) {
		text, err = c.metrics(ctx)
		return err
	})
	return text, err
}

func (c *Client) metrics(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+"/metrics", http.NoBody)
	if err != nil {
		return "", fmt.Errorf("call metrics: %w", err)
	}
	response, err := c.do(r, "metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", finish(ctx, "metrics", response, nil)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxMetrics))
	if err != nil {
		return "", fmt.Errorf("call metrics: read the answer: %w", broken(ctx, err))
	}
	return string(text), nil
}

// maxMetrics bounds what is read of the metrics, in bytes.
const maxMetrics = 8 << 20

// Ready asks the server whether it can work (SPEC §6.4). That it cannot is no
// error: Status and Reasons say it.
func (c *Client) Ready(ctx context.Context) (ready api.Readiness, err error) {
	err = c.anywhere(ctx, func() (err error) {
		ready, err = c.ready(ctx)
		return err
	})
	return ready, err
}

func (c *Client) ready(ctx context.Context) (ready api.Readiness, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+"/readyz", http.NoBody)
	if err != nil {
		return ready, fmt.Errorf("call readyz: %w", err)
	}
	response, err := c.do(r, "readyz")
	if err != nil {
		return ready, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReady))
	if err != nil {
		return ready, fmt.Errorf("call readyz: read the answer: %w", err)
	}
	if err := json.Unmarshal(body, &ready); err != nil || ready.Status == "" {
		return ready, decode("readyz", body, response.StatusCode, nil) // an error in JSON-RPC's shape, or no server of ours
	}
	return ready, nil
}
