package httpd

import (
	"net/http"
	"time"

	"nexus.internal/bridge/events"
	"nexus.internal/bridge/rpc"
)

// serveEvents answers GET /agent/{id}/events, and GET /events, which is of no agent.
func (s *Server) serveEvents(x *request, agent, query string) {
	_ = x.rc.SetReadDeadline(time.Time{})
	if s.o.Requests.Closed() {
		s.refuse(x, draining)
		return
	}
	values, refused := readQuery(query, events.Parameters(agent)...)
	if refused != nil {
		s.refuse(x, refused)
		return
	}
	x.tellStale(s.o.Router.Stale())
	refused, ended := s.o.Events.Serve(x.r.Context(), events.Request{
		By: x.by, Agent: agent, RequestID: x.id, Forwarded: x.machine != "", LastEventID: x.r.Header.Get("Last-Event-ID"), Query: values,
	}, s.stream(x))
	switch {
	case refused != nil:
		s.refuse(x, refused)
	case ended != "":
		x.log.agent, x.log.ended = agent, ended
	}
}

// eventStream is a text/event-stream response, from its first event on.
type eventStream struct {
	x       *request
	timeout time.Duration // for one batch
	opened  bool
}

func (s *Server) stream(x *request) *eventStream {
	return &eventStream{x: x, timeout: s.o.WriteTimeout}
}

// Send implements [rpc.Writer]. A client that does not take the events within the timeout
// loses its connection.
func (st *eventStream) Send(events []byte) error {
	if !st.opened {
		st.opened = true
		h := st.x.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no")
		st.x.w.WriteHeader(http.StatusOK)
	}
	_ = st.x.rc.SetWriteDeadline(time.Now().Add(st.timeout))
	if _, err := st.x.w.Write(events); err != nil {
		return rpc.ErrSlowClient
	}
	if err := st.x.rc.Flush(); err != nil {
		return rpc.ErrSlowClient
	}
	return nil
}
