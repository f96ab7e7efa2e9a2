package bridge

import (
	"net/http"
	"time"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/textcut"
)

// serveRPC answers a POST: the checks of size, type and JSON, then dispatch.
func (s *Server) serveRPC(x *exchange, to target) {
	body, refused, ok := s.takeBody(x)
	if !ok {
		s.refuse(x, refused)
		return
	}
	if !s.requests.Enter() {
		s.refuse(x, draining)
		return
	}
	defer s.requests.Leave()
	if x.by.Valid != nil && x.by.Valid.Err() != nil { // it ended while the body came
		s.refuse(x, wrongKey)
		return
	}
	message := jsonrpc.DecodeBody(body, MaxBatch)
	signed, refused, ok := s.checkSigned(x, message.Items)
	if ok {
		refused, ok = s.checkRate(x, len(message.Items))
	}
	if ok { // last, so that what came too early may come again
		refused, ok = s.useSignatures(x, signed)
	}
	if !ok {
		s.refuse(x, refused)
		return
	}
	call := func(r jsonrpc.Request) *rpc.Call {
		return &rpc.Call{Request: r, Agent: to.agent, By: x.by, RequestID: x.id}
	}
	switch item := message.Items[0]; {
	case message.Batch:
		s.serveBatch(x, message.Items, call)
	case item.Refused != nil:
		s.answer(x, http.StatusBadRequest, jsonrpc.AppendResponse(nil, *item.Refused))
		x.note(rpc.Refused(item.Refused.Error))
	default:
		s.serveCall(x, call(item.Request))
	}
}

// serveCall answers one call: by JSON, or as it goes if the client and the method do that.
func (s *Server) serveCall(x *exchange, c *rpc.Call) {
	var out *rpc.Stream
	if !c.Request.IsNotification() && s.router.Streams(c.Request.Method) && takes(x.r.Header.Values("Accept"), "text/event-stream") {
		out = rpc.NewStream(func() rpc.Writer { return s.openStream(x) }, s.o.Heartbeat)
	}
	response, record := s.router.Serve(x.r.Context(), c, out)
	x.note(record)
	x.trace = record.Trace
	switch {
	case record.Left:
	case out.Opened():
		out.Answer(*response)
	case response == nil:
		x.w.WriteHeader(http.StatusNoContent)
	default:
		s.answer(x, record.Status, jsonrpc.AppendResponse(nil, *response))
	}
}

// serveBatch runs all items at once and answers in their order.
func (s *Server) serveBatch(x *exchange, items []jsonrpc.Item, call func(jsonrpc.Request) *rpc.Call) {
	x.log.batch = true
	body, status := s.router.ServeBatch(x.r.Context(), items, call, x.note)
	switch {
	case rpc.Left(x.r.Context()):
	case body == nil:
		x.w.WriteHeader(http.StatusNoContent)
	default:
		s.answer(x, status, body)
	}
}

// takeBody reads a body of the right size and type, unless it is plain already that it
// is in vain. Of one without a key it says no more than that there is none, whatever
// else is wrong with it.
func (s *Server) takeBody(x *exchange) (body []byte, refused rpc.Error, ok bool) {
	keyless := x.key.IsZero()
	if refused, ok = s.foresee(x); ok && keyless {
		select {
		case s.keyless <- struct{}{}:
			defer func() { <-s.keyless }()
		default:
			return nil, s.later(x, tooMany, time.Second), false
		}
	}
	if ok {
		body, refused, ok = s.readBody(x)
	}
	if !ok && keyless {
		refused = noKey
	}
	return body, refused, ok
}

// foresee refuses what no body could make good.
func (s *Server) foresee(x *exchange) (refused rpc.Error, ok bool) {
	if x.r.ContentLength > MaxBody {
		return tooLarge, false
	}
	if refused, ok = checkType(x.r.Header); !ok {
		return refused, false
	}
	if s.requests.Closed() {
		return draining, false
	}
	if wait := s.settings.Load().rate.Wait(x.by.Grant.ID); wait > 0 && !x.key.IsZero() {
		return s.later(x, tooMany, wait), false
	}
	return rpc.Error{}, true
}

// clipName bounds a name as a client wrote it.
func clipName(name string) string { return textcut.Clip(name, 64) }
