package rpc

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/textcut"
	"nexus.internal/supervisor"
)

// Error is an error as a client sees it.
type Error struct {
	Status int // of HTTP, unless the request is part of a batch
	Err    *jsonrpc.Error
	// Internal says that the client gets no details, and the log all.
	Internal bool
	// Moved says which machine has the agent by now; nil for other errors.
	Moved *MovedError
}

// Refuse makes an Error. Details that message says already are left out.
func Refuse(status int, code jsonrpc.Code, message string, kind api.ErrorKind, details string, suggestions ...string) Error {
	if suggestions == nil {
		suggestions = []string{}
	}
	if strings.Contains(message, details) {
		details = ""
	}
	return Error{Status: status, Err: &jsonrpc.Error{ // a client may have sent a key in the place of a name
		Code: code, Message: redact.Keys(message),
		Data: &jsonrpc.ErrorData{Type: string(kind), Details: redact.Keys(details), RecoverySuggestions: suggestions},
	}}
}

// With is the error with another HTTP status.
func (e Error) With(status int) Error {
	e.Status = status
	return e
}

// TurnError is how a turn failed, with what had been said.
type TurnError struct {
	Err      error
	Outcome  supervisor.Outcome // "" if it had not ended
	Text     string
	Replayed bool
	// AgentID and RequestID are of the turn; "" where the client has named both.
	AgentID, RequestID string
}

func (e *TurnError) Error() string { return e.Err.Error() }
func (e *TurnError) Unwrap() error { return e.Err }

// ErrDestroyed is supervisor.ErrNotFound for an agent that was there when the request came,
// ErrNotAccepted is supervisor.ErrDraining for what was refused.
var (
	ErrDestroyed   = fmt.Errorf("%w: it was destroyed meanwhile", supervisor.ErrNotFound)
	ErrNotAccepted = fmt.Errorf("%w: nothing was accepted", supervisor.ErrDraining)
)

// AgentNotFound is the error of an agent that neither runs nor is saved. err is
// supervisor.ErrNotFound, or ErrDestroyed, which it wraps.
func AgentNotFound(id string, err error) error {
	details := "no agent of that name runs, and none is saved"
	if errors.Is(err, ErrDestroyed) {
		details = "the agent was destroyed, or got another name, while the request was under way"
	}
	return &api.Error{
		Kind: api.KindAgentNotFound, About: id, Details: details, Err: err,
		Suggestions: []string{"See list_agents, or create the agent with create_agent."},
	}
}

// AgentExists is the error of an agent that is there already.
func AgentExists(id string) error {
	return &api.Error{
		Kind: api.KindAgentExists, About: id, Err: supervisor.ErrExists,
		Suggestions: []string{"Use the agent that is there (create_agent with if_exists \"use\" finds it), or destroy it first."},
	}
}

// maxPartial bounds the text of a turn that failed, in bytes (SPEC §7).
const maxPartial = 64 << 10

// ToErrorOf is ToError for a call of that method. An agent's process begins its words with the command that it was sent: the caller sees
// the method instead.
func ToErrorOf(method api.Method, err error) Error {
	e := ToError(err)
	if refused, ok := errors.AsType[*supervisor.ChildError](err); ok && refused.Command != "" && e.Err.Message == refused.Message {
		if rest, named := strings.CutPrefix(refused.Message, refused.Command+": "); named {
			e.Err.Message = method.Name + ": " + rest
		}
	}
	if !method.Once() { // it takes no request_id
		all := slices.Clone(e.Err.Data.RecoverySuggestions)
		for i, s := range all {
			all[i] = strings.Replace(s, withNewID, "", 1)
		}
		e.Err.Data.RecoverySuggestions = all
	}
	return e
}

// OwnTaskError is a fault under a task that had an agent of its own, which is gone by then.
type OwnTaskError struct{ Err error }

func (e *OwnTaskError) Error() string { return e.Err.Error() }
func (e *OwnTaskError) Unwrap() error { return e.Err }

// ToError turns an error into what the client sees. err is not nil.
func ToError(err error) Error {
	e := table(err)
	e.Moved, _ = errors.AsType[*MovedError](err)
	if _, ok := errors.AsType[*OwnTaskError](err); ok {
		again := []api.ErrorKind{api.KindChildCrashed, api.KindAgentNotFound, api.KindAgentStopped, api.KindAgentFailed, api.KindServerDraining}
		if slices.Contains(again, api.ErrorKind(e.Err.Data.Type)) {
			e.Err.Data.RecoverySuggestions = []string{"Send it again with the same request_id: the task is done again, by another agent."}
		}
	}
	if t, ok := errors.AsType[*TurnError](err); ok {
		data := e.Err.Data
		data.Partial, data.Replayed = textcut.Head(t.Text, maxPartial), t.Replayed
		data.AgentID, data.RequestID = t.AgentID, t.RequestID
		if errors.Is(err, supervisor.ErrDraining) {
			drained(data, t.Outcome)
		}
	}
	return e
}

// drained says what became of a send that was accepted before the server went down.
func drained(data *jsonrpc.ErrorData, outcome supervisor.Outcome) {
	if data.Outcome = string(outcome); outcome == "" {
		data.Details = "the send was accepted, and the server ended before its turn did"
		data.RecoverySuggestions = []string{"Start the server again, and send it again with the same request_id: that tells how it ended."}
		return
	}
	data.Details = "the send was accepted, and cancelled by the end of the server"
	data.RecoverySuggestions = []string{"Start the server again, and send it again with another request_id."}
}

// table is the one that turns errors into codes (SPEC §6.2). What an error of ours says of
// itself goes before what it wraps.
func table(err error) Error {
	if e, ok := errors.AsType[*RemoteError](err); ok {
		return e.Answer
	}
	if e, ok := errors.AsType[*api.ParamError](err); ok {
		return Refuse(200, jsonrpc.CodeInvalidParams, e.Problem, api.KindInvalidParams, e.Hint, "Correct the parameters and send it again.")
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return withCode(e)
	}
	for _, part := range []func(error) *api.Error{ofMachines, ofSession, ofProcess} {
		if e := part(err); e != nil {
			return withCode(e)
		}
	}
	if e, ok := errors.AsType[*supervisor.ChildError](err); ok {
		return ofChild(e)
	}
	for _, part := range []func(error) *api.Error{ofTurn, ofServer} {
		if e := part(err); e != nil {
			return withCode(e)
		}
	}
	e := Refuse(200, jsonrpc.CodeInternalError, "Internal error", api.KindInternalError, "the server's log says more")
	e.Internal = true
	return e
}

// services are the errors of a model's service, by their reason (SPEC §3.6).
var services = map[string]struct {
	kind        api.ErrorKind
	suggestions []string
}{
	protocol.RateLimited:    {api.KindRateLimited, []string{"Wait a while, then send it again" + withNewID + ".", otherModel}},
	protocol.Credentials:    {api.KindCredentials, []string{"Give the server a key that the service takes, in the environment variable that config.json names (api_key_env), and start it again.", otherModel}},
	protocol.Unreachable:    {api.KindUnreachable, []string{"Send it again" + withNewID + " when the service answers.", otherModel}},
	protocol.BudgetExceeded: {api.KindBudgetExceeded, []string{"See what the account at the service allows.", otherModel}},
	protocol.ContentRefused: {api.KindContentRefused, []string{"Say it in other words, or begin a new conversation.", otherModel}},
}

const (
	withNewID = " with a new request_id"
	// startAfresh is for an agent that is not started again by itself.
	startAfresh = "Correct the cause, then call shutdown of the agent: its next request starts it afresh, with its conversation."
	otherModel  = "Or choose another model with set_model."
)

// whoseLimit matches the agent whose limit the broker names.
var whoseLimit = regexp.MustCompile(`\bagent ([A-Za-z0-9._-]+) (?:has used|has spent|may spend) `)

// ofLimits are the suggestions by the words of the broker about its limits.
var ofLimits = map[string]string{
	"raise limits.tokens":   "Raise limits.tokens with set_limits.",
	"raise limits.cost_usd": "Raise limits.cost_usd with set_limits.",
	"lift limits.cost_usd":  "Add the price to config.json and have the server read it again (SIGHUP), or set limits.cost_usd to 0, no limit, with set_limits.",
}

// ofChild is the error of what a child reported. Its words are the message.
func ofChild(e *supervisor.ChildError) Error {
	if e.Reason == protocol.Unsupported {
		return Refuse(200, jsonrpc.CodeMethodNotFound, e.Message, api.KindUnsupported, "", "See get_context or list_kinds for what an agent of this kind is, and what its program offers.")
	}
	s, ok := services[e.Reason]
	if !ok {
		return Refuse(200, jsonrpc.CodeInternalError, e.Message, api.KindExecutionError, "", "Correct what the message names, then send it again.")
	}
	out := Refuse(200, api.Errors[s.kind].Code, e.Message, s.kind, "", slices.Clone(s.suggestions)...)
	for words, suggestion := range ofLimits {
		if s.kind == api.KindBudgetExceeded && strings.Contains(e.Message, words) {
			if whose := whoseLimit.FindStringSubmatch(e.Message); whose != nil { // another one perhaps, which has created the one that was asked
				suggestion = strings.TrimSuffix(suggestion, ".") + " of agent " + whose[1] + "."
			}
			out.Err.Data.RecoverySuggestions = []string{suggestion}
		}
	}
	if out.Err.Data.RetryAfterS = e.RetryAfter.Seconds(); e.RetryAfter > 0 {
		out.Err.Data.RecoverySuggestions[0] = fmt.Sprintf("Wait %.0f s, then send it again%s.", math.Ceil(e.RetryAfter.Seconds()), withNewID)
	}
	return out
}

// withCode is an error with the code, the status and the message of its kind.
func withCode(e *api.Error) Error {
	row := api.Errors[e.Kind]
	message := row.Message
	if e.About != "" {
		message += ": " + e.About
	}
	out := Refuse(row.Status, row.Code, message, e.Kind, e.Details, e.Suggestions...)
	out.Err.Data.Limit = e.Limit
	return out
}
