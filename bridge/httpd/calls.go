package httpd

import (
	"net/http"

	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
)

// serveRPC answers a POST: the checks of size, type and JSON, then dispatch.
func (s *Server) serveRPC(x *exchange, to route) {
	body, refused := s.readBody(x)
	if refused != nil {
		s.refuse(x, refused)
		return
	}
	if !s.o.Requests.Enter() {
		s.refuse(x, draining)
		return
	}
	defer s.o.Requests.Leave()
	if x.by.Valid != nil && x.by.Valid.Err() != nil { // it ended while the body came
		s.refuse(x, wrongKey)
		return
	}
	message := jsonrpc.DecodeBody(body, maxBatch)
	signed, refused := s.checkSigned(x, message.Items)
	if refused == nil {
		refused = s.checkRate(x, len(message.Items))
	}
	if refused == nil { // last, so that what came too early may come again
		refused = s.useSignatures(x, signed)
	}
	if refused != nil {
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
	if !c.Request.IsNotification() && s.o.Router.Streams(c.Request.Method) && accepts(x.r.Header.Values("Accept"), "text/event-stream") {
		out = rpc.NewStream(func() rpc.Writer { return s.openStream(x) }, s.o.Heartbeat)
	}
	response, record := s.o.Router.Serve(x.r.Context(), c, out)
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
	body, status := s.o.Router.ServeBatch(x.r.Context(), items, call, x.note)
	switch {
	case rpc.Left(x.r.Context()):
	case body == nil:
		x.w.WriteHeader(http.StatusNoContent)
	default:
		s.answer(x, status, body)
	}
}
