package httpd

import (
	"net/http"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
)

// heedRestore has no saved agent started for a request whose header says so.
func (x *request) heedRestore() {
	if x.r.Header.Get("X-Nexus-Restore") == "false" {
		x.r = x.r.WithContext(rpc.WithoutRestore(x.r.Context()))
	}
}

// serveRPC answers a POST: the checks of size, type and JSON, then dispatch.
func (s *Server) serveRPC(x *request, to route) {
	x.heedRestore()
	body, refused := s.readBody(x)
	if refused != nil {
		s.refuse(x, refused)
		return
	}
	var message jsonrpc.Body
	x.share.Work(func() { message = jsonrpc.DecodeBody(body, maxBatch) })
	switch {
	case s.o.Requests.Enter():
		defer s.o.Requests.Leave()
	case s.o.Router.Drains(message.Items) && s.drained.Enter(): // Stop waits for it
		defer s.drained.Leave()
	default:
		x.w.Header().Set("Connection", "close")
		s.refuse(x, draining)
		return
	}
	if x.by.Valid != nil && x.by.Valid.Err() != nil { // it ended while the body came
		s.refuse(x, wrongKey)
		return
	}
	signed, refused := s.checkSigned(x, message.Items)
	if refused == nil {
		refused = s.checkRate(x, len(message.Items))
	}
	if refused == nil && !x.share.AddCalls(len(message.Items)) {
		refused = x.retryAfter(&rpc.OverBudget, time.Second)
	}
	if refused == nil { // last, so that what came too early may come again
		refused = s.useSignatures(x, signed)
	}
	if refused != nil {
		s.refuse(x, refused)
		return
	}
	call := rpc.Call{Agent: to.agent, By: x.by, RequestID: x.id, Base: x.base(), Share: x.share}
	switch item := message.Items[0]; {
	case message.Batch:
		s.serveBatch(x, message.Items, call)
	case item.Refused != nil:
		s.answer(x, http.StatusBadRequest, jsonrpc.AppendResponse(nil, *item.Refused))
		x.note(rpc.Refused(item.Refused.Error))
	default:
		call.Request = item.Request
		s.serveCall(x, &call)
	}
}

// tellStale says in the answer since when what this machine has may be old; "" for nothing.
func (x *request) tellStale(since string) {
	if since != "" {
		x.w.Header().Set(api.StaleHeader, since)
	}
}

// serveCall answers one call: by JSON, or as it goes if the client and the method do that.
func (s *Server) serveCall(x *request, c *rpc.Call) {
	var out *rpc.Stream
	if !c.Request.IsNotification() && s.o.Router.Streams(c.Request.Method) && accepts(x.r.Header.Values("Accept"), "text/event-stream") {
		out = rpc.NewStream(s.stream(x), s.o.Heartbeat)
	}
	x.tellStale(s.o.Router.Stale())
	response, record := s.o.Router.Serve(x.r.Context(), c, out)
	if c.Stale != "" {
		x.w.Header().Set(api.StaleHeader, c.Stale)
	}
	x.note(record)
	x.trace = record.Trace
	x.tellMoved(record.Moved)
	switch {
	case record.Left:
	case out.Opened():
		out.Answer(*response)
	case response == nil:
		x.w.WriteHeader(http.StatusNoContent)
	default:
		if record.Status == http.StatusTooManyRequests {
			x.retryAfter(nil, time.Second)
		}
		var body []byte
		x.share.Work(func() { body = jsonrpc.AppendResponse(make([]byte, 0, len(response.Result)+128), *response) })
		s.answer(x, record.Status, body)
	}
}

// serveBatch runs all items at once and answers in their order.
func (s *Server) serveBatch(x *request, items []jsonrpc.Item, like rpc.Call) {
	x.log.batch = true
	x.tellStale(s.o.Router.Stale())
	parts, status, records := s.o.Router.ServeBatch(x.r.Context(), items, like)
	x.log.calls = records
	switch {
	case rpc.Left(x.r.Context()):
	case parts == nil:
		x.w.WriteHeader(http.StatusNoContent)
	default:
		s.answer(x, status, parts...)
	}
}
