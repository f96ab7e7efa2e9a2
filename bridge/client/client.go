package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/protocol/jsonrpc"
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
	URL  string // as in http://127.0.0.1:8765
	Port int    // on 127.0.0.1; 0 means auth.DefaultPort
	Key  auth.Key
}

// Client calls one server.
type Client struct {
	base   string // without a slash at its end
	key    auth.Key
	http   *http.Client
	lastID atomic.Int64
}

// New returns a client. It calls nobody yet. A URL that is not http on a
// loopback address is an error: the key would leave the machine.
func New(o Options) (*Client, error) {
	base := o.URL
	if base == "" {
		port := o.Port
		if port == 0 {
			port = auth.DefaultPort
		}
		base = "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("server URL: %w", err)
	}
	if u.Scheme != "http" || !loopback(u.Hostname()) || u.User != nil || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("server URL %q: want http://127.0.0.1:PORT", base)
	}
	return &Client{base: "http://" + u.Host, key: o.Key, http: &http.Client{
		Transport: transportTo(o.Key),
		// The key must not follow a redirect; our servers send none.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func loopback(host string) bool {
	return host == "127.0.0.1" || host == "localhost" || host == "::1"
}

// transport reaches loopback directly: no proxy may see the key.
func transport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
}

// transportTo is a transport whose connections all lead to servers that have the
// key.
func transportTo(key auth.Key) *http.Transport {
	t := transport()
	if !key.IsZero() {
		t.DialContext = (&prover{key: key, dialer: net.Dialer{Timeout: dialTimeout}}).dial
	}
	return t
}

// URL is the server's base, without a slash at its end.
func (c *Client) URL() string { return c.base }

// Close drops connections that are kept for later calls.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// RPCError is a failure that the server reports.
type RPCError struct {
	Code    int    // of JSON-RPC (SPEC §6.2)
	Message string // for people
	// Data says more; its zero value where the server did not.
	Data jsonrpc.ErrorData
	// HTTPStatus is the status that the response came with.
	HTTPStatus int
}

// Error is the message and, where they add something, the details.
func (e *RPCError) Error() string {
	if e.Data.Details == "" || strings.Contains(e.Message, e.Data.Details) || strings.Contains(e.Data.Details, e.Message) {
		return e.Message
	}
	return e.Message + ": " + e.Data.Details
}

// ErrNotNexus says that what answered is no nexus server.
var ErrNotNexus = errors.New("the answer is not a nexus server's")

// RootPath is where global methods are called.
const RootPath = "/rpc"

// AgentPath is where the methods of an agent are called.
func AgentPath(id string) string { return "/agent/" + url.PathEscape(id) }

// Call calls a method. params is a struct or map, nil for none; result is a
// pointer that the result is decoded into, nil to ignore it. Unknown members
// of the result are ignored. ctx bounds the call; a send goes on without its
// caller.
func (c *Client) Call(ctx context.Context, path, method string, params, result any) error {
	response, err := c.post(ctx, path, method, params, "application/json")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return finish(method, response, result)
}

// finish reads a response that is not a stream.
func finish(method string, response *http.Response, result any) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("call %s: read the answer: %w", method, err)
	}
	if len(body) > maxAnswer {
		return fmt.Errorf("call %s: the answer is longer than %d bytes", method, maxAnswer)
	}
	return decode(method, body, response.StatusCode, result)
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

func (c *Client) post(ctx context.Context, path, method string, params any, accept string) (*http.Response, error) {
	request := jsonrpc.Request{Method: method, ID: jsonrpc.NumberID(c.lastID.Add(1))}
	if params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			return nil, fmt.Errorf("call %s: encode the parameters: %w", method, err)
		}
		request.Params = raw
	}
	body, err := jsonrpc.AppendRequest(nil, request)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", method, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", method, err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", accept)
	return c.do(r, method)
}

func (c *Client) do(r *http.Request, what string) (*http.Response, error) {
	if !c.key.IsZero() {
		r.Header.Set("Authorization", "Bearer "+c.key.Reveal())
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", what, err)
	}
	return response, nil
}

// CreateAgent starts an agent.
func (c *Client) CreateAgent(ctx context.Context, p api.CreateAgentParams) (r api.CreateAgentResult, err error) {
	return r, c.Call(ctx, RootPath, "create_agent", p, &r)
}

// DestroyAgent stops an agent and forgets it.
func (c *Client) DestroyAgent(ctx context.Context, id string) (r api.DestroyAgentResult, err error) {
	return r, c.Call(ctx, RootPath, "destroy_agent", api.AgentIDParams{AgentID: id}, &r)
}

// ListAgents lists the agents that the server runs.
func (c *Client) ListAgents(ctx context.Context) (r api.ListAgentsResult, err error) {
	return r, c.Call(ctx, RootPath, "list_agents", nil, &r)
}

// ShutdownServer ends the server.
func (c *Client) ShutdownServer(ctx context.Context) error {
	return c.Call(ctx, RootPath, "shutdown_server", nil, nil)
}

// Send sends a message and waits for the answer.
func (c *Client) Send(ctx context.Context, id string, p api.SendParams) (r api.SendResult, err error) {
	return r, c.Call(ctx, AgentPath(id), "send", p, &r)
}

// Cancel cancels a send that waits or runs.
func (c *Client) Cancel(ctx context.Context, id, requestID string) (r api.CancelResult, err error) {
	return r, c.Call(ctx, AgentPath(id), "cancel", api.CancelParams{RequestID: requestID}, &r)
}

// ShutdownAgent stops an agent's process.
func (c *Client) ShutdownAgent(ctx context.Context, id string) error {
	return c.Call(ctx, AgentPath(id), "shutdown", nil, nil)
}

// GetTokens tells how an agent's context window is used.
func (c *Client) GetTokens(ctx context.Context, id string) (r api.GetTokensResult, err error) {
	return r, c.Call(ctx, AgentPath(id), "get_tokens", nil, &r)
}

// GetContext describes an agent's conversation.
func (c *Client) GetContext(ctx context.Context, id string) (r api.GetContextResult, err error) {
	return r, c.Call(ctx, AgentPath(id), "get_context", nil, &r)
}

// GetMessages reads a page of an agent's conversation.
func (c *Client) GetMessages(ctx context.Context, id string, p api.GetMessagesParams) (r api.GetMessagesResult, err error) {
	return r, c.Call(ctx, AgentPath(id), "get_messages", p, &r)
}

// GetModel tells which model answers.
func (c *Client) GetModel(ctx context.Context, id string) (r api.GetModelResult, err error) {
	return r, c.Call(ctx, AgentPath(id), "get_model", nil, &r)
}

// SetModel switches an agent's model.
func (c *Client) SetModel(ctx context.Context, id, model string) (r api.SetModelResult, err error) {
	return r, c.Call(ctx, AgentPath(id), "set_model", api.SetModelParams{Model: model}, &r)
}

// ListSessions reads a page of the saved sessions.
func (c *Client) ListSessions(ctx context.Context, p api.ListSessionsParams) (r api.ListSessionsResult, err error) {
	return r, c.Call(ctx, RootPath, "list_sessions", p, &r)
}

// LoadSession starts an agent from a saved session.
func (c *Client) LoadSession(ctx context.Context, p api.LoadSessionParams) (r api.LoadSessionResult, err error) {
	return r, c.Call(ctx, RootPath, "load_session", p, &r)
}

// SaveSession saves a temporary agent under a name, or a copy of a named one.
func (c *Client) SaveSession(ctx context.Context, p api.SaveSessionParams) (r api.SaveSessionResult, err error) {
	return r, c.Call(ctx, RootPath, "save_session", p, &r)
}

// CloneSession copies a session.
func (c *Client) CloneSession(ctx context.Context, src, dest string) (r api.CloneSessionResult, err error) {
	return r, c.Call(ctx, RootPath, "clone_session", api.CloneSessionParams{SrcSession: src, DestSession: dest}, &r)
}

// RenameSession gives a session another name.
func (c *Client) RenameSession(ctx context.Context, old, name string) (r api.RenameSessionResult, err error) {
	return r, c.Call(ctx, RootPath, "rename_session", api.RenameSessionParams{OldName: old, NewName: name}, &r)
}

// DeleteSession deletes a saved session.
func (c *Client) DeleteSession(ctx context.Context, name string) (r api.DeleteSessionResult, err error) {
	return r, c.Call(ctx, RootPath, "delete_session", api.DeleteSessionParams{SessionName: name}, &r)
}
