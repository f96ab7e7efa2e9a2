package httpd

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/events"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
)

// serveEvents answers GET /agent/{id}/events, and GET /events, which is of no agent.
func (s *Server) serveEvents(x *exchange, agent, query string) {
	_ = x.rc.SetReadDeadline(time.Time{})
	if s.o.Requests.Closed() {
		s.refuse(x, draining)
		return
	}
	values, wrong := readQuery(query, events.Parameters(agent)...)
	if wrong != nil {
		s.refuse(x, *wrong)
		return
	}
	refused, ended := s.o.Events.Serve(x.r.Context(), events.Request{
		By: x.by, Agent: agent, LastEventID: x.r.Header.Get("Last-Event-ID"), Query: values,
	}, func() rpc.Writer { return s.openStream(x) })
	switch {
	case refused != nil:
		s.refuse(x, *refused)
	case ended != "":
		x.log.agent, x.log.ended = agent, ended
	}
}

// readQuery reads a query that may have the members named, each of them once.
func readQuery(query string, members ...string) (values url.Values, wrong *rpc.Error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, new(badQuery("Invalid query: want NAME=VALUE&…", "Escape what is not a letter or digit."))
	}
	way := "Leave out the query."
	if len(members) > 0 {
		way = "Known are: " + strings.Join(members, ", ") + "."
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(members, name):
			return nil, new(badQuery("Unknown parameter: "+clipName(name), way))
		case len(values[name]) > 1:
			return nil, new(badQuery("Invalid parameter "+name+": stands twice", "Name it once."))
		}
	}
	return values, nil
}

// badQuery refuses the query of a GET.
func badQuery(message, way string) rpc.Error {
	return rpc.Refuse(http.StatusBadRequest, jsonrpc.CodeInvalidParams, message, api.KindInvalidParams, message, way)
}

// eventStream is an open text/event-stream response.
type eventStream struct {
	x       *exchange
	timeout time.Duration // for one batch
}

func (s *Server) openStream(x *exchange) *eventStream {
	h := x.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	x.w.WriteHeader(http.StatusOK)
	return &eventStream{x: x, timeout: s.o.WriteTimeout}
}

// Send implements [rpc.Writer]. A client that does not take the events within the timeout
// loses its connection.
func (st *eventStream) Send(events []byte) error {
	_ = st.x.rc.SetWriteDeadline(time.Now().Add(st.timeout))
	if _, err := st.x.w.Write(events); err != nil {
		return rpc.ErrSlowClient
	}
	if err := st.x.rc.Flush(); err != nil {
		return rpc.ErrSlowClient
	}
	return nil
}

// Beat implements [rpc.Writer].
func (st *eventStream) Beat() error { return st.Send([]byte(": heartbeat\n\n")) }
