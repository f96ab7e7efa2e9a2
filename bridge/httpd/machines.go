package httpd

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/forward"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/accept"
	"nexus.internal/protocol/format"
	"nexus.internal/protocol/jsonrpc"
)

// maxMachineHeader bounds the headers of a request of another machine, in bytes: what an agent may do is among them.
const maxMachineHeader = 8 << 20

// ServeMachines serves the connections that other machines make, until Stop, or until ln is closed by another, which is
// its error. What they pass on is for whom they say, and goes nowhere else: keys, signatures, rates and bounds of connections are of the
// machine that a client asks. It may be called once.
func (s *Server) ServeMachines(ln net.Listener) error {
	err := s.machines.Serve(accept.Retry(ln, s.log))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve other machines: %w", err)
}

// tellMoved says to another machine, which asks for an agent, which one has it by now.
func (x *request) tellMoved(m *rpc.MovedError) {
	if m != nil && x.machine != "" {
		forward.SetMoved(x.w.Header(), m)
	}
}

// serveMachine answers what another machine passes on: a call, or a stream of the events of an agent, or of all that this machine has.
func (s *Server) serveMachine(w http.ResponseWriter, r *http.Request) {
	x, to, query := newRequest(w, r)
	defer s.account(x)()
	machine, by, err := forward.From(r.Header)
	_, later := errors.AsType[*format.LaterError](err)
	switch {
	case later:
		s.refuse(x, new(rpc.ToError(&api.Error{
			Kind: api.KindNodeUnreachable, Details: "the machine that has it refuses the call, and nothing was accepted: " + err.Error(), Err: err,
			Suggestions: []string{"Send it again when the machine is upgraded."},
		})))
		return
	case err != nil:
		s.refuse(x, apiError(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest, err.Error()))
		return
	case !s.handlers.Enter():
		s.refuse(x, draining)
		return
	}
	defer s.handlers.Leave()
	x.by, x.machine = by, machine
	run, ofRun := forward.Run(r.URL.Path)
	switch {
	case ofRun && s.o.Runs != nil:
		serveRun(s, x, run)
	case (to.kind == toEvents || to.kind == toAllEvents) && r.Method == http.MethodGet:
		s.serveEvents(x, to.agent, query)
	case to.calls() && r.Method == http.MethodPost:
		s.serveForwarded(x, to)
	default:
		s.refuse(x, unknownPath)
	}
}

// serveForwarded answers a call that another machine passes on.
func (s *Server) serveForwarded(x *request, to route) {
	x.heedRestore()
	body, refused := s.receiveBody(x)
	if refused != nil {
		s.refuse(x, refused)
		return
	}
	message := jsonrpc.DecodeBody(body, 1)
	item := message.Items[0]
	switch {
	case item.Refused != nil:
		s.answer(x, http.StatusBadRequest, jsonrpc.AppendResponse(nil, *item.Refused))
		x.note(rpc.Refused(item.Refused.Error))
		return
	case s.o.Requests.Enter():
		defer s.o.Requests.Leave()
	case s.o.Router.Drains(message.Items) && s.drained.Enter(): // Stop waits for it
		defer s.drained.Leave()
	default:
		s.refuse(x, draining)
		return
	}
	s.serveCall(x, &rpc.Call{Request: item.Request, Agent: to.agent, By: x.by, RequestID: x.id, Forwarded: true})
}
