package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/events"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/tracing"
)

const (
	// maxAnswer bounds the answer to one call, in bytes.
	maxAnswer = 64 << 20
	// maxIdle is how many connections to one machine are kept when nothing is asked of it, idleTimeout how long.
	maxIdle     = 8
	idleTimeout = time.Minute
	// allPatience is how long all machines are waited for that are asked at once.
	allPatience = 5 * time.Second
	// runPatience is how long a machine is waited for that takes the record of a run.
	runPatience = 30 * time.Second
)

// Client has calls answered by other machines.
type Client struct {
	machines  Machines
	transport *http.Transport
	learnt    learnt
	placed    placed
}

var (
	_ rpc.Elsewhere    = (*Client)(nil)
	_ events.Elsewhere = (*Client)(nil)
)

// NewClient returns a Client. Close must follow.
func NewClient(machines Machines) *Client {
	return &Client{machines: machines, transport: &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			machine, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			c, err := machines.Dial(ctx, machine)
			if err != nil {
				return nil, &dialError{err}
			}
			return c, nil
		},
		DisableCompression: true, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout,
	}}
}

// Close closes the connections, once nothing is asked any more.
func (f *Client) Close() { f.transport.CloseIdleConnections() }

// Owner is the machine that has an agent, "" for this one; known is false if none is known to.
func (f *Client) Owner(agent string) (machine string, known bool) {
	machine, known = f.machines.Owner(agent)
	machine, known = f.learnt.of(agent, machine, known)
	if machine == f.machines.Self() {
		machine = ""
	}
	return machine, known
}

// Cut implements [rpc.Elsewhere].
func (f *Client) Cut() (since time.Time, err error) { return f.machines.Cut() }

// Self implements [events.Elsewhere].
func (f *Client) Self() string { return f.machines.Self() }

// Others implements [events.Elsewhere].
func (f *Client) Others() (all []events.Machine) {
	for _, m := range f.machines.All() {
		if m.Name != f.machines.Self() {
			all = append(all, events.Machine{Name: m.Name, State: string(m.State)})
		}
	}
	return all
}

// dialError says that there was no connection, so that nothing was asked.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// errand is what another machine is asked to do.
type errand struct {
	asked  string // what it has that was asked for (rpc.Call.Asked)
	method string // "" for a stream of events
	id     string // the request_id by which the same call tells what became of it; "" for none
}

func errandOf(c *rpc.Call) errand {
	of := errand{asked: c.Asked, method: c.Request.Method}
	switch of.method {
	case api.Send.Name, api.ExecuteTask.Name, api.CreatePlan.Name, api.RunPlan.Name:
		var params struct {
			RequestID string `json:"request_id"`
		}
		_ = json.Unmarshal(c.Request.Params, &params) // without one there is nothing to name
		of.id = params.RequestID
	}
	return of
}

// unreachable is the error of a machine that has not answered.
func unreachable(machine string, of errand, err error) error {
	what, back := "the machine "+machine, "nce the machine is back"
	if of.asked != "" {
		what += ", which has the " + of.asked + ","
	}
	if of.asked == "agent" || of.asked == "agents" {
		back += ", or another one has the " + of.asked
	}
	e := &api.Error{
		Kind: api.KindNodeUnreachable, Details: fmt.Sprintf("%s is not reached, and nothing was accepted: %v", what, err), Err: err,
		Suggestions: []string{"Send it again o" + back + "."},
	}
	if _, ok := errors.AsType[*dialError](err); !ok {
		e.Details = fmt.Sprintf("%s is not reached any more; whether it goes on with the request is not known: %v", what, err)
		e.Suggestions = []string{"O" + back + ", " + of.outcome()}
	}
	return e
}

// outcome says how a client learns what became of an errand.
func (e errand) outcome() string {
	switch {
	case e.id == "":
		return "look whether it was done, before you send it again."
	case e.method == api.RunPlan.Name:
		return fmt.Sprintf("the same %s with request_id %s goes on with the run, or tells how it ended.", e.method, e.id)
	default:
		return fmt.Sprintf("the same %s with request_id %s tells how it ended.", e.method, e.id)
	}
}

// ask sends a request to a machine. The error is NODE_UNREACHABLE, or that of ctx.
func (f *Client) ask(ctx context.Context, machine string, of errand, r *http.Request) (*http.Response, error) {
	if trace := tracing.From(ctx); trace != (tracing.Parent{}) {
		r.Header.Set("Traceparent", trace.String())
	}
	response, err := f.transport.RoundTrip(r)
	switch {
	case err == nil:
		return response, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, unreachable(machine, of, err)
}

// Call implements [rpc.Elsewhere].
func (f *Client) Call(ctx context.Context, machine string, c *rpc.Call, out *rpc.Stream) (jsontext.Value, error) {
	body, err := jsonrpc.AppendRequest(make([]byte, 0, len(c.Request.Params)+256), c.Request)
	if err != nil {
		return nil, fmt.Errorf("forward a call: %w", err)
	}
	path := "/rpc"
	if c.Agent != "" {
		path = "/agent/" + c.Agent
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+machine+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("forward a call: %w", err)
	}
	f.sign(r, c.By, c.RequestID)
	r.Header.Set("Content-Type", "application/json")
	if !rpc.Restores(ctx) {
		r.Header.Set("X-Nexus-Restore", "false")
	}
	if out != nil {
		r.Header.Set("Accept", eventStream)
	}
	response, err := f.ask(ctx, machine, errandOf(c), r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	c.Stale = response.Header.Get(api.StaleHeader)
	if moved := movedTo(response.Header); moved != nil {
		return nil, f.moved(machine, moved, response)
	}
	switch {
	case response.StatusCode == http.StatusNoContent:
		return nil, nil
	case response.Header.Get("Content-Type") == eventStream && out != nil:
		body, err = relay(&blocks{from: response.Body, body: response.Body}, out)
	default:
		body, err = readAll(response.Body)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, rpc.ErrSlowClient):
		return nil, err
	case err != nil:
		return nil, unreachable(machine, errandOf(c), err)
	}
	result, err := decode(machine, errandOf(c), response.StatusCode, body)
	if err == nil && c.Agent == "" {
		f.learnt.from(machine, result)
	}
	return result, err
}

// CallAll implements [rpc.Elsewhere].
func (f *Client) CallAll(ctx context.Context, c *rpc.Call, params jsontext.Value) (self string, answers []rpc.RemoteAnswer) {
	self = f.machines.Self()
	ctx, cancel := context.WithTimeout(ctx, allPatience)
	defer cancel()
	for _, m := range f.machines.All() {
		if m.Name != self && m.State != Left {
			answers = append(answers, rpc.RemoteAnswer{Machine: m.Name, Err: errLost, Empty: m.Claims == 0})
			if m.State == Up {
				answers[len(answers)-1].Err, answers[len(answers)-1].Empty = nil, false
			}
		}
	}
	var asking sync.WaitGroup
	for i := range answers {
		if answers[i].Err != nil {
			continue
		}
		asking.Go(func() {
			one := *c
			one.Request.Params = params
			answers[i].Result, answers[i].Err = f.Call(ctx, answers[i].Machine, &one, nil)
		})
	}
	asking.Wait()
	return self, answers
}

// errLost is of a machine that is not asked, as it is lost.
var errLost = errors.New("it is lost")

// decode reads the answer of a machine: a result, or an error as a *rpc.RemoteError.
func decode(machine string, of errand, status int, body []byte) (jsontext.Value, error) {
	answer, err := jsonrpc.DecodeResponse(body)
	switch {
	case err != nil:
		return nil, unreachable(machine, of, fmt.Errorf("its answer cannot be read: %w", err))
	case answer.Error == nil:
		return answer.Result, nil
	case answer.Error.Data == nil:
		return nil, unreachable(machine, of, fmt.Errorf("its error says nothing: %w", answer.Error))
	}
	return nil, &rpc.RemoteError{Answer: rpc.Error{Status: status, Err: answer.Error}}
}

func readAll(from io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(from, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		return nil, errTooLong
	}
	return body, err
}

var errTooLong = fmt.Errorf("its answer is longer than %d bytes", maxAnswer)

// Events implements [events.Elsewhere].
func (f *Client) Events(ctx context.Context, machine string, r events.Request) (events.Blocks, error) {
	to := "http://" + machine + "/events"
	if r.Agent != "" {
		to = "http://" + machine + "/agent/" + r.Agent + "/events"
	}
	if query := r.Query.Encode(); query != "" {
		to += "?" + query
	}
	ctx, cancel := context.WithCancel(ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to, http.NoBody)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("forward a stream: %w", err)
	}
	f.sign(request, r.By, r.RequestID)
	if r.LastEventID != "" {
		request.Header.Set("Last-Event-Id", r.LastEventID)
	}
	of := errand{}
	if r.Agent != "" {
		of.asked = "agent"
	}
	response, err := f.ask(ctx, machine, of, request)
	if err != nil {
		cancel()
		return nil, err
	}
	if response.StatusCode == http.StatusOK && response.Header.Get("Content-Type") == eventStream {
		return &blocks{from: response.Body, body: response.Body, cancel: cancel}, nil
	}
	defer cancel()
	defer response.Body.Close()
	if moved := movedTo(response.Header); moved != nil {
		return nil, f.moved(machine, moved, response)
	}
	body, err := readAll(response.Body)
	if err == nil {
		_, err = decode(machine, of, response.StatusCode, body)
	}
	return nil, err
}
