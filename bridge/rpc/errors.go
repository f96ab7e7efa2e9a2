package rpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"syscall"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/suggest"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/transcript"
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

// ToErrorOf is ToError for a call of that method.
func ToErrorOf(method api.Method, err error) Error {
	e := ToError(err)
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
	startAfresh = "Correct the cause, then call shutdown of the agent (nexus-rpc stop): its next request starts it afresh, with its conversation."
	otherModel  = "Or choose another model with set_model."
)

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
	for _, limit := range []string{"limits.tokens", "limits.cost_usd"} { // the broker's words
		if s.kind == api.KindBudgetExceeded && strings.Contains(e.Message, limit) {
			out.Err.Data.RecoverySuggestions = []string{"Raise " + limit + " with set_limits."}
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

// seeTurn is suggested where a turn was ended.
const seeTurn = "get_messages shows what the turn did until then, and another send goes on from there."

func apiError(kind api.ErrorKind, err error, suggestions ...string) *api.Error {
	return &api.Error{Kind: kind, Details: err.Error(), Suggestions: suggestions}
}

// askAgain is suggested where it is not known what became of a send.
const askAgain = "Send it again with the same request_id: that tells how it ended, or begins it."

// ofMachines is the part of the table for agents that several machines have.
func ofMachines(err error) *api.Error {
	switch {
	case errors.Is(err, supervisor.ErrMoved):
		return apiError(api.KindNodeUnreachable, err, askAgain)
	case errors.Is(err, supervisor.ErrNoRoom):
		return apiError(api.KindStorageFull, err, "Delete sessions that nobody needs, or start the servers with a larger --cluster-bytes, then send it again.")
	case errors.Is(err, supervisor.ErrNoMajority):
		return apiError(api.KindNoQuorum, err, askAgain)
	}
	return nil
}

// ofTurn is the part of the table for what an agent did not take, and for turns.
func ofTurn(err error) *api.Error {
	if e, ok := errors.AsType[*supervisor.CycleError](err); ok {
		return apiError(api.KindWouldDeadlock, e, "Answer first, and let the other agent ask again.")
	}
	switch {
	case errors.Is(err, supervisor.ErrQueueFull):
		return apiError(api.KindQueueFull, err, "Wait for a running send to end, or cancel one that waits.")
	case errors.Is(err, supervisor.ErrBusy):
		return apiError(api.KindAgentBusy, err, "Send it again later, or with when_busy queue or steer.")
	case errors.Is(err, supervisor.ErrFailed):
		return apiError(api.KindAgentFailed, err,
			startAfresh,
			"Or end it with destroy_agent.")
	case errors.Is(err, supervisor.ErrUnrecorded):
		return unrecorded(err)
	case errors.Is(err, supervisor.ErrStopped):
		return apiError(api.KindAgentStopped, err, "Send it again: that starts the agent.")
	case errors.Is(err, supervisor.ErrTurnTimeout):
		if e, ok := errors.AsType[*supervisor.TurnLimitError](err); ok {
			failure := apiError(api.KindTimeout, err, "Raise limits.turn_s of the agent by set_limits, or ask for less in one message.", seeTurn)
			failure.Limit = e.Limit()
			return failure
		}
		return apiError(api.KindTimeout, err, "Raise timeout_s, or ask for less in one message.", seeTurn)
	case errors.Is(err, supervisor.ErrNoRequest):
		return &api.Error{
			Kind: api.KindPermissionRequestNotFound, Details: "it was answered, has ended, or never was", Suggestions: []string{"See pending of get_permissions."},
		}
	case errors.Is(err, supervisor.ErrTurnConflict):
		return &api.Error{Kind: api.KindRequestIDConflict, Suggestions: []string{"Use a new request_id for a new message."}}
	}
	return nil
}

// ofServer is the part of the table for the server itself and the machine.
func ofServer(err error) *api.Error {
	if e, ok := errors.AsType[*auth.UnsavedError](err); ok {
		return apiError(api.KindNotRecorded, e, "Make room on the server's disk, or its home writable: the server saves it as soon as it can.")
	}
	switch {
	case errors.Is(err, supervisor.ErrDraining):
		return apiError(api.KindServerDraining, err, "Start the server again; saved agents come back when they are asked.")
	case errors.Is(err, auth.ErrNoMajority):
		return &api.Error{
			Kind: api.KindNoQuorum, Details: "the machines do not agree on keys, and nothing was accepted: " + err.Error(), Err: err,
			Suggestions: []string{"Send it again when a majority of the machines is there."},
		}
	case errors.Is(err, context.DeadlineExceeded):
		return &api.Error{
			Kind: api.KindTimeout, Details: "the agent's process did not answer in time",
			Suggestions: []string{"Send it again; if it happens again, destroy the agent and create it anew."},
		}
	case isAny(err, noFiles):
		return &api.Error{
			Kind: api.KindTooManyFiles, Details: "the server has as many files and connections open as it may", Suggestions: []string{closeFiles},
		}
	case errors.Is(err, auth.ErrTooMany):
		return apiError(api.KindTooManyKeys, err, "See list_keys and revoke_key.")
	}
	if e, ok := errors.AsType[*protocol.CodeError](err); ok && e.Kind == protocol.MissingChecker {
		return &api.Error{Kind: api.KindCheckerNotFound, Details: e.Message, Suggestions: []string{"Install one of them where the server's PATH finds it."}}
	} else if ok {
		return &api.Error{Kind: api.KindExecutionError, Details: e.Message}
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || isAny(err, noRoom) { // the home may not be written, or cannot be
		return unrecorded(err)
	}
	return nil
}

// noRoom is what the system says of a disk that is full, broken or read-only; noFiles, where
// it opens no more files.
var (
	noRoom  = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO}
	noFiles = []error{syscall.EMFILE, syscall.ENFILE}
)

const closeFiles = "Close connections that nobody needs, or start the server where it may open more files, then send it again."

func isAny(err error, causes []error) bool {
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// MendDir is the beginning of what to do about a working directory in which no process can
// be, for the reason err; nil is a link in its place.
func MendDir(err error) string {
	switch {
	case err == nil:
		return "Put a directory in place of the link, an empty one will do"
	case errors.Is(err, fs.ErrPermission):
		return "Let the server's user enter the directory"
	}
	return "Make the directory again, an empty one will do"
}

// MoveAgent is how an agent that can start leaves its working directory.
func MoveAgent(id string) string {
	return `set_cwd {"cwd":"/DIR"} of agent ` + id + " moves it elsewhere."
}

func unrecorded(err error) *api.Error {
	mend := "Make room on the server's disk, or its home writable"
	if errors.Is(err, fs.ErrNotExist) {
		mend = "Put the server's home back where it was"
	}
	return apiError(api.KindNotRecorded, err, mend+", then send it again: nothing was accepted.")
}

// ofProcess is the part of the table for what agents' processes did.
func ofProcess(err error) *api.Error {
	if e, ok := errors.AsType[*supervisor.SessionError](err); ok {
		reason := sessions.ErrInUse
		if !e.InUse {
			reason = fmt.Errorf("%w: %s", sessions.ErrUnreadable, e.Reason)
		}
		return ofSession(&sessions.Error{Name: e.Name, Err: reason})
	}
	if e, ok := errors.AsType[*supervisor.DirError](err); ok {
		again := ", then send it again."
		if _, failed := errors.AsType[*supervisor.CrashError](err); failed {
			again = ", and call shutdown of the agent (nexus-rpc stop): its next request starts it. Then " + MoveAgent(e.Agent)
		}
		return &api.Error{
			Kind: api.KindStartFailed, Details: "start the agent's process: " + e.Error(), Suggestions: []string{MendDir(e) + again},
		}
	}
	if e, ok := errors.AsType[*supervisor.StartError](err); ok {
		failure := &api.Error{Kind: api.KindStartFailed, Details: "start the agent's process: " + e.Error()}
		if _, alien := errors.AsType[*supervisor.HandshakeError](e); alien {
			failure.Suggestions = []string{"Install nexus and nexus-child of the same version."}
			return failure
		}
		failure.Suggestions = []string{afterNoStart(e)}
		limited(failure, e.Exit)
		return failure
	}
	if e, ok := errors.AsType[*supervisor.CrashError](err); ok {
		details := e.Error()
		if e.Exit != nil && e.Exit.Stderr != "" {
			details += "; its last words: " + e.Exit.Stderr
		}
		failure := &api.Error{Kind: api.KindChildCrashed, Details: details, Suggestions: []string{"Send it again" + withNewID + ": the agent comes back with its conversation."}}
		if e.Reason == supervisor.ReasonStart { // the agent has failed
			failure.Suggestions = []string{startAfresh}
		}
		limited(failure, e.Exit)
		return failure
	}
	if e, ok := errors.AsType[*supervisor.CommandError](err); ok {
		return &api.Error{
			Kind: api.KindInvalidParams, About: "too large for the agent", Details: e.Error(), Suggestions: []string{"Send less, or attach files by their path."},
		}
	}
	e, ok := errors.AsType[*supervisor.ChildError](err)
	if ok && e.Reason == protocol.Busy {
		return apiError(api.KindAgentBusy, e, "Send it again when the turn or the compaction has ended. A turn can be cancelled.")
	}
	if ok && (e.Reason == protocol.StorageFull || e.Reason == protocol.NotSaved) {
		return ofChange(e)
	}
	return nil
}

// afterNoStart says what can be done where an agent's process did not start.
func afterNoStart(e *supervisor.StartError) string {
	switch {
	case e.Exit != nil:
		return "Correct what the process complains of, then send it again."
	case isAny(e, noRoom):
		return "Make room on the server's disk, or its home writable, then send it again."
	case isAny(e, noFiles):
		return closeFiles
	}
	return "Correct what the details name, then send it again."
}

func limited(e *api.Error, exit *supervisor.Exit) {
	if exit != nil && exit.Limit != "" {
		e.Limit = exit.Limit
		e.Suggestions = append(e.Suggestions, "Ask for less at once, or raise the limit by set_limits: it holds from the agent's next process on.")
	}
}

// ofChange is for a change of an agent that its session cannot hold.
func ofChange(e *supervisor.ChildError) *api.Error {
	kind, suggestion := api.KindStorageFull, "Make room on the disk of the server's home, then send it again"
	if e.Reason == protocol.NotSaved {
		kind, suggestion = api.KindNotRecorded, "See that the agent's session can be written, then send it again"
	}
	if e.Holds == nil {
		suggestion += ": nothing has changed."
	} else {
		suggestion += ": what it takes from the agent holds already."
	}
	return &api.Error{Kind: kind, Details: e.Message, Suggestions: []string{suggestion}}
}

// ofSession is the part of the table for saved sessions.
func ofSession(err error) *api.Error {
	e, ok := errors.AsType[*sessions.Error](err)
	if !ok {
		return nil
	}
	_, damaged := errors.AsType[*transcript.LineError](e.Err)
	switch {
	case errors.Is(e.Err, sessions.ErrNotFound):
		return &api.Error{
			Kind: api.KindSessionNotFound, About: ClipName(e.Name), Details: "no session of that name is saved", Suggestions: []string{"See list_sessions."},
		}
	case errors.Is(e.Err, sessions.ErrExists):
		return &api.Error{
			Kind: api.KindSessionExists, About: e.Name, Details: "there is a session of that name",
			Suggestions: []string{"Choose another name, or delete or rename the one that is there."},
		}
	case errors.Is(e.Err, sessions.ErrInUse):
		return &api.Error{
			Kind: api.KindSessionInUse, Details: "a process has session " + e.Name + " open", Suggestions: []string{"End the nexus-child that has it open."},
		}
	case damaged, errors.Is(e.Err, sessions.ErrUnreadable):
		return &api.Error{
			Kind: api.KindSessionDamaged, About: e.Name, Details: e.Err.Error(), Suggestions: []string{"Correct its file, or delete it with delete_session."},
		}
	}
	return nil
}

// unknownMethod says that there is no such method where it was called; elsewhere says that
// there is one of that name at another place.
func unknownMethod(name string, called api.Scope, elsewhere bool) error {
	e := &api.Error{Kind: api.KindMethodNotFound, About: ClipName(name)}
	suggestion := "See rpc.discover at POST / for all methods."
	switch {
	case elsewhere:
		e.Details = fmt.Sprintf("%s is no %s method", ClipName(name), called)
		suggestion = "Methods of an agent are called at POST /agent/{id}."
		if called == api.Agent {
			suggestion = "Global methods are called at POST / or /rpc."
		}
	default:
		names := make([]string, len(api.Methods))
		for i, m := range api.Methods {
			names[i] = m.Name
		}
		if near := suggest.Nearest(ClipName(name), names); near != "" {
			e.Details = fmt.Sprintf("did you mean %s?", near)
		}
	}
	e.Suggestions = []string{suggestion}
	return e
}
