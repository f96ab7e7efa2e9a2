package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/pflag"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/jsonrpc"
)

const rpcHelp = `Speak JSON-RPC 2.0 on stdin and stdout, for programs that start this one: a request or a batch of requests on each
line of stdin, and its answer on a line of stdout, as soon as it is there.

  {"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"chat"}}
  {"jsonrpc":"2.0","id":2,"method":"send","agent":"chat","params":{"content":"hello"},"stream":true}

"agent" is the agent whose method is called. With "stream":true the notifications of send and run_plan are lines
before the answer. The methods are those of the server (/docs); one is started where none runs. At the end of stdin
the open calls are answered first.`

// Bounds of what is under way.
const (
	maxAtOnce = 64  // requests; further lines are read when one has ended
	maxBatch  = 100 // requests in a batch, as of the server
)

// rpcLines is the verb that speaks the server's methods on stdin and stdout.
type rpcLines struct{ stdio bool }

func (v *rpcLines) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.stdio, "stdio", false, "speak on stdin and stdout; needed, as there is no other way yet")
}

func (v *rpcLines) check(*pflag.FlagSet, []string) error {
	if !v.stdio {
		return Usage("say --stdio: requests are read from stdin, a line each")
	}
	return nil
}

func (v *rpcLines) run(ctx context.Context, a *App, c *client.Client, _ []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &lineServer{client: c, out: a.out, end: cancel, slots: make(chan struct{}, maxAtOnce)}
	lines := frame.NewReader(a.Stdin)
	var err error
	for ctx.Err() == nil {
		var line []byte
		if line, err = lines.Next(); err == nil {
			s.take(ctx, string(line))
			continue
		}
		tooLarge, ok := errors.AsType[*frame.TooLargeError](err)
		if !ok {
			break
		}
		_ = s.write(jsonrpc.AppendResponse(nil, refusal(jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
			fmt.Sprintf("a line has more than %d bytes", tooLarge.Limit))))
	}
	s.calls.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read stdin: %w", err)
	}
	return nil
}

// lineServer answers lines.
type lineServer struct {
	client *client.Client
	out    io.Writer
	end    context.CancelCauseFunc // when nobody reads the answers
	calls  sync.WaitGroup
	slots  chan struct{} // one for each request that is under way
}

// take has a line answered. It waits while there are maxAtOnce.
func (s *lineServer) take(ctx context.Context, line string) {
	if strings.TrimSpace(line) == "" {
		return // between others
	}
	body := jsonrpc.DecodeBody([]byte(line), maxBatch)
	// The members beside those of JSON-RPC are read of each item, in the same order.
	about := []gjson.Result{gjson.Parse(line)}
	if body.Batch {
		about = about[0].Array()
	}
	answers := make([][]byte, len(body.Items))
	var open sync.WaitGroup
	for i, item := range body.Items {
		if item.Refused != nil {
			answers[i] = jsonrpc.AppendResponse(nil, *item.Refused)
			continue
		}
		s.slots <- struct{}{}
		open.Add(1)
		s.calls.Go(func() {
			defer func() { <-s.slots; open.Done() }()
			answers[i] = s.answer(ctx, item.Request, about[i])
		})
	}
	s.calls.Go(func() {
		open.Wait()
		_ = s.write(joined(body.Batch, answers))
	})
}

// joined is the line that answers a line; nil if nothing does, as of notifications.
func joined(batch bool, answers [][]byte) []byte {
	var line []byte
	for _, answer := range answers {
		switch {
		case answer == nil:
			continue
		case batch && line == nil:
			line = append(line, '[')
		case batch:
			line = append(line, ',')
		}
		line = append(line, answer...)
	}
	if batch && line != nil {
		line = append(line, ']')
	}
	return line
}

// answer calls one method; nil for a notification.
func (s *lineServer) answer(ctx context.Context, r jsonrpc.Request, about gjson.Result) []byte {
	answer := jsonrpc.Response{ID: r.ID}
	result, err := s.call(ctx, r, about)
	if failed, ok := errors.AsType[*client.RPCError](err); ok {
		answer.Error = &jsonrpc.Error{Code: jsonrpc.Code(failed.Code), Message: failed.Message, Data: &failed.Data}
		if failed.Data.Type == string(api.KindMethodNotFound) {
			failed.Data.RecoverySuggestions = []string{whereCalled(r.Method)}
		}
	} else if param, ok := errors.AsType[*api.ParamError](err); ok {
		answer.Error = refusal(jsonrpc.CodeInvalidParams, param.Problem, api.KindInvalidParams, param.Hint).Error
	} else if invalid, ok := errors.AsType[*usageError](err); ok {
		answer.Error = refusal(jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest, invalid.problem).Error
	} else if err != nil {
		answer.Error = refusal(jsonrpc.CodeUnavailable, "Resource unavailable", "CONNECTION_FAILED", err.Error()).Error
	}
	answer.Result = result
	if r.IsNotification() {
		return nil
	}
	return jsonrpc.AppendResponse(nil, answer)
}

// whereCalled says of a method that was not found where it was called how it is called on lines, which have no paths.
func whereCalled(method string) string {
	m, ok := api.Find(method)
	switch {
	case !ok:
		return `See rpc.discover, without the member "agent", for all methods.`
	case m.Scope == api.Agent:
		return `Methods of an agent are called with its name in the member "agent".`
	default:
		return `Global methods are called without the member "agent".`
	}
}

func (s *lineServer) call(ctx context.Context, r jsonrpc.Request, about gjson.Result) (jsontext.Value, error) {
	agent, streams := about.Get("agent"), about.Get("stream")
	switch {
	case agent.Exists() && (agent.Type != gjson.String || agent.Str == ""):
		return nil, Usage(`member "agent" must be the name of an agent`)
	case streams.Exists() && !streams.IsBool():
		return nil, Usage(`member "stream" must be true or false`)
	case r.Positional:
		return nil, Usage(`member "params" must be an object`)
	case r.Auth != nil:
		return nil, Usage(`member "auth" is not wanted here: the server's key is used`)
	}
	var params any
	if r.Params != nil {
		params = r.Params
	}
	if streams.Bool() {
		return s.client.CallStream(ctx, agent.Str, r.Method, params, func(notification jsontext.Value) error {
			return s.write(notification)
		})
	}
	path := client.RootPath
	if agent.Exists() {
		path = client.AgentPath(agent.Str)
	}
	var result jsontext.Value
	err := s.client.Call(ctx, path, r.Method, params, &result)
	return result, err
}

// write writes one line, if there is something in it. An error has ended the verb.
func (s *lineServer) write(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	_, err := s.out.Write(append(line[:len(line):len(line)], '\n'))
	if err != nil {
		s.end(err)
	}
	return err
}

// refusal is an answer that is an error of ours.
func refusal(code jsonrpc.Code, message string, kind api.ErrorKind, details string) jsonrpc.Response {
	return jsonrpc.Response{ID: jsonrpc.NullID, Error: &jsonrpc.Error{
		Code: code, Message: message, Data: &jsonrpc.ErrorData{Type: string(kind), Details: details},
	}}
}
