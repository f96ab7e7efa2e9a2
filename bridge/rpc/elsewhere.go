package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/ratelimit"
)

// Elsewhere has calls answered by the other machines of a cluster. It is safe for concurrent use.
type Elsewhere interface {
	// Cut says why a majority of the machines is not reached, and since when what this one has may be old, zero if it has reached none since it started; nil
	// while one is.
	Cut() (since time.Time, err error)
	// Owner is the machine that has an agent, "" for this one; known is false if none is known to.
	Owner(agent string) (machine string, known bool)
	// Place chooses the machine for a new agent, "" for this one. The error is an *api.ParamError if none fits, or NODE_UNREACHABLE.
	Place(want api.Placement) (machine string, err error)
	// Node is the machine of that name, "" for this one. The error is an *api.ParamError if none is known, or NODE_UNREACHABLE.
	Node(name string) (machine string, err error)
	// Call has a machine answer a call, and returns what it answered: the result, or the error as a *RemoteError. If it
	// answers as it goes, that is written to out, but for the answer itself. The result is nil for a notification. A *MovedError says that the machine did
	// nothing, as the agent is another one's: Owner says then whose it is.
	Call(ctx context.Context, machine string, c *Call, out *Stream) (jsontext.Value, error)
	// CallAll has each other machine answer a call, with other parameters, within a bounded time. self is the name of this machine.
	CallAll(ctx context.Context, c *Call, params jsontext.Value) (self string, answers []RemoteAnswer)
}

// RemoteAnswer is what one machine has answered.
type RemoteAnswer struct {
	Machine string
	Result  jsontext.Value
	Err     error // nil with a result
	Empty   bool  // it is lost, and has neither agents nor saved sessions any more
}

// RemoteError is an error that another machine has answered with. It is passed on as it stands.
type RemoteError struct{ Answer Error }

func (e *RemoteError) Error() string { return e.Answer.Err.Error() }

// ClaimedError says that another machine has an agent, or a session, of that name, or the run of a plan, or with both the agents of that run.
type ClaimedError struct {
	Agent   string
	Run     string // of a plan; "" for an agent
	Machine string
}

func (e *ClaimedError) Error() string {
	switch {
	case e.Run != "" && e.Agent != "":
		return fmt.Sprintf("the machine %s has the agents of the run %s", e.Machine, e.Run)
	case e.Run != "":
		return fmt.Sprintf("the machine %s has the run %s", e.Machine, e.Run)
	}
	return fmt.Sprintf("the machine %s has an agent %s", e.Machine, e.Agent)
}

// MovedError says that another machine has the agent of a call by now, so that nothing was done.
type MovedError struct {
	Agent, Machine string
	Err            error // what the client is told if that machine is not asked
}

func (e *MovedError) Error() string { return e.Err.Error() }
func (e *MovedError) Unwrap() error { return e.Err }

// moves is how often a call follows an agent that another machine has by now, movedDelay between two attempts: it may not be known everywhere yet.
const (
	moves      = 50
	movedDelay = 100 * time.Millisecond
)

// follows reports whether a call that came to nothing, as another machine has the agent by now, is to be made again. It waits before.
func (r *Router) follows(ctx context.Context, c *Call, out *Stream, try int, err error) bool {
	_, moved := errors.AsType[*MovedError](err)
	return moved && r.o.Elsewhere != nil && !c.Forwarded && !out.Opened() && try < moves && ratelimit.Sleep(ctx, movedDelay) == nil
}

// queues reports whether a call is a send of a client that would wait for its turn. What an agent sends, another one waits for, that may be waited for itself.
func queues(c *Call, params any) bool {
	p, ok := params.(api.SendParams)
	when := protocol.Value(p.WhenBusy)
	return ok && c.By.Agent == nil && (when == "" || when == api.WhenBusyQueue)
}

// goneTo is the error of a call that another machine has passed on, for an agent that a third one has by now.
func (r *Router) goneTo(c *Call, names []string) error {
	if r.o.Elsewhere == nil || !c.Forwarded {
		return nil
	}
	for _, name := range names {
		if machine, known := r.o.Elsewhere.Owner(name); known {
			if machine == "" {
				return nil
			}
			return r.o.Access.Moved(name, machine)
		}
	}
	return nil
}

// What another machine is asked for.
const (
	askedAgent   = "agent"
	askedSession = "session"
	askedRun     = "run"
	askedAgents  = "agents"
)

// claimed is the machine that was found to have one of the agents which a call names, when that was to be started here, or the run of a plan; "" if err
// says nothing of that.
func claimed(c *Call, names []string, err error) string {
	e, ok := errors.AsType[*ClaimedError](err)
	if !ok || c.Forwarded || c.Agent != "" || c.By.Agent != nil || e.Run == "" && !slices.Contains(names, e.Agent) {
		return ""
	}
	switch {
	case e.Run == "":
		c.Asked = askedAgent
	case e.Agent == "":
		c.Asked = askedRun
	default:
		c.Asked = askedAgents
	}
	return e.Machine
}

// Stale is since when what this machine of a cluster has may be old, as it does not reach a majority of the others, as api.StaleHeader says it; "" while
// it does, and for a server alone.
func (r *Router) Stale() string {
	if r.o.Elsewhere == nil {
		return ""
	}
	switch since, err := r.o.Elsewhere.Cut(); {
	case err == nil:
		return ""
	case since.IsZero():
		return api.StaleNever
	default:
		return since.UTC().Format(time.RFC3339)
	}
}

// certain refuses what changes something while a majority of the machines is not reached: NO_QUORUM.
func (r *Router) certain(m api.Method) error {
	if r.o.Elsewhere == nil || m.Effect == api.Reads || m.Alone {
		return nil
	}
	_, err := r.o.Elsewhere.Cut()
	if err == nil {
		return nil
	}
	return &api.Error{
		Kind: api.KindNoQuorum, Details: "this machine is cut off from the others, and nothing was accepted: " + err.Error(), Err: err,
		Suggestions: []string{"Send it again when a majority of the machines is there, or to a machine that reaches one."},
	}
}

// owner is the other machine that has the agent of a call; "" if this one is to answer.
func (r *Router) owner(c *Call) string {
	if r.o.Elsewhere == nil || c.Forwarded || c.Agent == "" {
		return ""
	}
	machine, _ := r.o.Elsewhere.Owner(c.Agent)
	return machine
}

// place is the other machine that is to answer a call of no agent alone, by what its parameters name; "" for this one.
func (r *Router) place(c *Call, m api.Method, params any) (machine string, err error) {
	create, _ := params.(api.CreateAgentParams)
	switch {
	case c.Forwarded || c.Agent != "":
		return "", nil
	case c.By.Agent != nil:
		if create.Place != nil {
			return "", api.Invalid("place", "an agent creates agents on its own machine")
		}
		return "", nil
	case r.o.Elsewhere == nil:
		if create.Place != nil {
			return "", api.Invalid("place", "the server is none of a cluster")
		}
		return "", nil
	}
	for _, name := range m.Named(params) {
		if machine, known := r.o.Elsewhere.Owner(name); known {
			if c.Asked = askedAgent; m.Of[0] != "agent_id" {
				c.Asked = askedSession
			}
			return machine, nil
		}
	}
	if named := namedNode(params); named != nil {
		return r.o.Elsewhere.Node(*named)
	}
	if create.Place == nil {
		return "", nil
	}
	return r.o.Elsewhere.Place(*create.Place)
}

// namedNode is the machine that a call is of by its name; nil if it names none.
func namedNode(params any) *string {
	switch p := params.(type) {
	case api.DrainNodeParams:
		return p.Node
	case api.LabelNodeParams:
		return p.Node
	}
	return nil
}

// Everywhere is what the machines of a cluster have answered.
type Everywhere[R any] struct {
	Self string // this machine
	// Results are by machine, this one among them.
	Results map[string]R
	// Missing are the machines that have not answered, but for Empty, which have neither agents nor saved sessions: others have taken them over.
	Missing, Empty []string
}

// HandleEverywhere is Handle for a method of clients that each machine of a cluster answers with what it has: merge makes one result of them.
// Of a server alone, the result is the handler's. ask changes the parameters for each machine; nil leaves them.
func HandleEverywhere[P, R any](
	r *Router, d api.Def[P, R], h func(ctx context.Context, c *Call, p P) (R, error), ask func(P) (P, error), merge func(p P, of Everywhere[R]) R,
) {
	Handle(r, d, func(ctx context.Context, c *Call, p P) (R, error) {
		if r.o.Elsewhere == nil || c.Forwarded || c.By.Agent != nil {
			return h(ctx, c, p)
		}
		asked := p
		if ask != nil {
			var err error
			if asked, err = ask(p); err != nil {
				return *new(R), err
			}
		}
		own, err := h(ctx, c, asked)
		if err != nil {
			return own, err
		}
		params, err := json.Marshal(asked)
		if err != nil {
			return own, fmt.Errorf("encode parameters: %w", err)
		}
		self, answers := r.o.Elsewhere.CallAll(ctx, c, params)
		of := Everywhere[R]{Self: self, Results: map[string]R{self: own}}
		for _, answer := range answers {
			var result R
			switch {
			case answer.Empty:
				of.Empty = append(of.Empty, answer.Machine)
				continue
			case answer.Err != nil || json.Unmarshal(answer.Result, &result) != nil:
				of.Missing = append(of.Missing, answer.Machine)
				continue
			}
			of.Results[answer.Machine] = result
		}
		if err := ctx.Err(); err != nil {
			return own, errors.Join(err, context.Cause(ctx))
		}
		slices.Sort(of.Missing)
		return merge(p, of), nil
	})
}
