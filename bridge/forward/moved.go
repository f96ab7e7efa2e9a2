package forward

import (
	"net/http"
	"strings"

	"nexus.internal/bridge/rpc"
)

// movedHeader is how a machine says which one has an agent by now, and that it did nothing: NAME AGENT.
const movedHeader = "X-Nexus-Moved"

// SetMoved says in the header of an answer to another machine which one has an agent by now.
func SetMoved(h http.Header, m *rpc.MovedError) { h.Set(movedHeader, m.Machine+" "+m.Agent) }

// movedTo reads what SetMoved said; nil if nothing was.
func movedTo(h http.Header) *rpc.MovedError {
	machine, agent, ok := strings.Cut(h.Get(movedHeader), " ")
	if !ok {
		return nil
	}
	return &rpc.MovedError{Agent: agent, Machine: machine}
}

// moved is the error of a machine that had an agent, as Owner says from now on.
func (f *Client) moved(machine string, m *rpc.MovedError, response *http.Response) error {
	f.learnt.moved(m.Agent, machine, m.Machine)
	body, err := readAll(response.Body)
	if err == nil {
		_, err = decode(machine, errand{asked: "agent"}, response.StatusCode, body)
	}
	if m.Err = err; err == nil { // of a notification, which nobody answers
		m.Err = &rpc.ClaimedError{Agent: m.Agent, Machine: m.Machine}
	}
	return m
}
