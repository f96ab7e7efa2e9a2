package bridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/plan"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/suggest"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
)

// agentError is a failure that names an agent.
type agentError struct {
	id  string
	err error // supervisor.ErrNotFound, errDestroyed or supervisor.ErrExists
}

// errDestroyed is ErrNotFound for an agent that was there when the request came.
var errDestroyed = fmt.Errorf("%w: it was destroyed meanwhile", supervisor.ErrNotFound)

// errNotAccepted is ErrDraining for what was refused.
var errNotAccepted = fmt.Errorf("%w: nothing was accepted", supervisor.ErrDraining)

// named gives an error of the agent id its name, if it says that the agent is
// gone and not which.
func named(id string, err error) error {
	if _, ok := errors.AsType[*agentError](err); ok || !errors.Is(err, supervisor.ErrNotFound) {
		return err
	}
	return &agentError{id: id, err: errDestroyed}
}

func (e *agentError) Error() string { return fmt.Sprintf("%v: %s", e.err, e.id) }
func (e *agentError) Unwrap() error { return e.err }

// methodError says that there is no such method where it was called.
type methodError struct {
	name  string
	scope api.Scope // of the place where it was called
	// elsewhere says that there is one of that name, which is called at another place.
	elsewhere bool
}

func (e *methodError) Error() string { return "method not found: " + e.name }

// details says what was probably meant, "" if nothing is known; way says where to look.
func (e *methodError) details() string {
	if e.elsewhere {
		return fmt.Sprintf("%s is no %s method", e.name, e.scope)
	}
	if near := e.nearest(); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return ""
}

// nearest is the method whose name is written much like it; "" for none.
func (e *methodError) nearest() string {
	names := make([]string, len(api.Methods))
	for i, m := range api.Methods {
		names[i] = m.Name
	}
	return suggest.Nearest(e.name, names)
}

func (e *methodError) way() string {
	if !e.elsewhere {
		return "See rpc.discover at POST / for all methods."
	}
	if e.scope == api.Agent {
		return "Global methods are called at POST / or /rpc."
	}
	return "Methods of an agent are called at POST /agent/{id}."
}

// refusal is an error as the client sees it.
type refusal struct {
	status int // of HTTP, unless the request is part of a batch
	err    *jsonrpc.Error
	// internal says that the client is told nothing and the log all.
	internal bool
}

// refuse makes a refusal. Details that message says already are left out.
func refuse(status int, code jsonrpc.Code, message string, kind api.ErrorKind, details string, suggestions ...string) refusal {
	if suggestions == nil {
		suggestions = []string{}
	}
	if strings.Contains(message, details) {
		details = ""
	}
	return refusal{status: status, err: &jsonrpc.Error{ // a client may have sent a key in the place of a name
		Code: code, Message: redact.Keys(message),
		Data: &jsonrpc.ErrorData{Type: string(kind), Details: redact.Keys(details), RecoverySuggestions: suggestions},
	}}
}

// with is the refusal with another HTTP status.
func (r refusal) with(status int) refusal {
	r.status = status
	return r
}

// limited says which limit ended the agent's process, if one did.
func (r refusal) limited(exit *supervisor.Exit) refusal {
	if exit != nil && exit.Limit != "" {
		r.err.Data.Limit = exit.Limit
		r.err.Data.RecoverySuggestions = append(r.err.Data.RecoverySuggestions, "Ask for less at once, or create an agent with higher limits: a saved one keeps its own.")
	}
	return r
}

// maxPartial bounds what is told of a turn that failed, in bytes (SPEC §7).
const maxPartial = 64 << 10

// turnError is how a turn failed, with what had been said.
type turnError struct {
	err      error
	outcome  supervisor.Outcome // "" if it had not ended
	said     string
	replayed bool
}

func (e *turnError) Error() string { return e.err.Error() }
func (e *turnError) Unwrap() error { return e.err }

// explain turns an error into what the client sees. Err is not nil.
func explain(err error) refusal {
	r := table(err)
	if e, ok := errors.AsType[*turnError](err); ok {
		r.err.Data.Partial, r.err.Data.Replayed = textcut.Head(e.said, maxPartial), e.replayed
		if errors.Is(err, supervisor.ErrDraining) {
			r.drained(e.outcome)
		}
	}
	return r
}

// drained says what became of a send that was accepted before the server went down.
func (r refusal) drained(outcome supervisor.Outcome) {
	data := r.err.Data
	if data.Outcome = string(outcome); outcome == "" {
		data.Details = "the send was accepted, and the server ended before its turn did"
		data.RecoverySuggestions = []string{"Start the server again, and send it again with the same request_id: that tells how it ended."}
		return
	}
	data.Details = "the send was accepted, and cancelled by the end of the server"
	data.RecoverySuggestions = []string{"Start the server again, and send it again with another request_id."}
}

// table is the one that turns errors into codes (SPEC §6.2).
func table(err error) refusal {
	if r, ok := explainTyped(err); ok {
		return r
	}
	const unavailable = "Resource unavailable"
	switch {
	case errors.Is(err, supervisor.ErrQueueFull):
		return refuse(200, jsonrpc.CodeUnavailable, unavailable, api.KindQueueFull, err.Error(),
			"Wait for a running send to end, or cancel one that waits.")
	case errors.Is(err, supervisor.ErrBusy):
		return refuse(200, jsonrpc.CodeUnavailable, unavailable, api.KindAgentBusy, err.Error(),
			"Send it again later, or with when_busy queue or steer.")
	case errors.Is(err, supervisor.ErrFailed):
		return refuse(200, jsonrpc.CodeUnavailable, unavailable, api.KindAgentFailed, err.Error(),
			"Correct the cause, then call shutdown of the agent (nexus-rpc stop): its next request starts it afresh, with its conversation.",
			"Or end it with destroy_agent.")
	case errors.Is(err, supervisor.ErrUnrecorded):
		return unrecorded(err)
	case errors.Is(err, plan.ErrUnrecorded):
		return refuse(200, jsonrpc.CodeUnavailable, unavailable, api.KindNotRecorded, err.Error(),
			"See that the server can write to its disk, then send it again: the run begins then, or goes on where it was.")
	case errors.Is(err, supervisor.ErrStopped):
		return refuse(200, jsonrpc.CodeUnavailable, unavailable, api.KindAgentStopped, err.Error(),
			"Send it again: that starts the agent.")
	case errors.Is(err, supervisor.ErrDraining):
		return refuse(http.StatusServiceUnavailable, jsonrpc.CodeUnavailable, unavailable, api.KindServerDraining, err.Error(),
			"Start the server again; saved agents come back when they are asked.")
	case errors.Is(err, supervisor.ErrTurnTimeout):
		if e, ok := errors.AsType[*supervisor.TurnLimitError](err); ok {
			r := refuse(200, jsonrpc.CodeServerError, "Execution timeout", api.KindTimeout, err.Error(),
				"Create an agent with a higher limits.turn_s (a saved one keeps its own), or ask for less in one message.")
			r.err.Data.Limit = e.Limit()
			return r
		}
		return refuse(200, jsonrpc.CodeServerError, "Execution timeout", api.KindTimeout, err.Error(),
			"Raise timeout_s, or ask for less in one message.")
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(200, jsonrpc.CodeServerError, "Execution timeout", api.KindTimeout, "the agent's process did not answer in time",
			"Send it again; if it happens again, destroy the agent and create it anew.")
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return refuse(200, jsonrpc.CodeUnavailable, unavailable, api.KindTooManyFiles, "the server has as many files and connections open as it may",
			"Close connections that nobody needs, or start the server where it may open more files, then send it again.")
	case errors.Is(err, errPlanCancelled):
		return refuse(200, jsonrpc.CodeServerError, "Execution failed", api.KindCancelled, err.Error(), "Ask again with a new request_id.")
	case errors.Is(err, supervisor.ErrNoRequest):
		return refuse(200, jsonrpc.CodeInvalidParams, "Permission request not found", api.KindPermissionRequestNotFound,
			"it was answered, has ended, or never was", "See pending of get_permissions.")
	case errors.Is(err, supervisor.ErrTurnConflict), errors.Is(err, plan.ErrConflict):
		return refuse(200, jsonrpc.CodeInvalidParams, "Invalid parameter request_id: was used before with other content",
			api.KindRequestIDConflict, "", "Use a new request_id for a new message.")
	}
	return otherwise(err)
}

// otherwise answers what has no line of its own in the table.
func otherwise(err error) refusal {
	for _, cause := range unsaved {
		if errors.Is(err, cause) {
			return unrecorded(err)
		}
	}
	r := refuse(200, jsonrpc.CodeInternalError, "Internal error", api.KindInternalError, "the server's log says more")
	r.internal = true
	return r
}

// unsaved is what the system says where nothing can be saved: the disk is full,
// broken or read-only, or the home may not be written.
var unsaved = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, fs.ErrPermission}

func unrecorded(err error) refusal {
	return refuse(200, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindNotRecorded, err.Error(),
		"Make room on the server's disk, or its home writable, then send it again: nothing was accepted.")
}

// explainTyped is the part of the table for errors that carry more than which.
func explainTyped(err error) (refusal, bool) {
	if e, ok := errors.AsType[*api.ParamError](err); ok {
		return refuse(200, jsonrpc.CodeInvalidParams, e.Problem, api.KindInvalidParams, e.Hint,
			"Correct the parameters and send it again."), true
	}
	if e, ok := errors.AsType[*roleError](err); ok {
		return refuse(200, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindRoleNotConfigured, e.Error(),
			fmt.Sprintf("Name an agent by agent_id, or one for roles.%s in config.json, and start the server again.", e.role)), true
	}
	if e, ok := errors.AsType[*answerError](err); ok {
		return refuse(200, jsonrpc.CodeServerError, "Execution failed", api.KindExecutionError, e.Error(),
			"Ask again with a new request_id, or another agent or model."), true
	}
	if e, ok := errors.AsType[*protocol.CodeFailure](err); ok && e.Kind == protocol.MissingChecker {
		return refuse(200, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindCheckerNotFound, e.Message,
			"Install one of them where the server's PATH finds it."), true
	} else if ok {
		return refuse(200, jsonrpc.CodeServerError, "Execution failed", api.KindExecutionError, e.Message), true
	}
	if e, ok := errors.AsType[*plan.DamagedError](err); ok {
		return refuse(200, jsonrpc.CodeServerError, "Execution failed", api.KindPlanRecordDamaged, e.Error(),
			"Use a new request_id, or remove the record from plans in the server's home."), true
	}
	if e, ok := errors.AsType[*methodError](err); ok {
		return refuse(200, jsonrpc.CodeMethodNotFound, "Method not found: "+e.name, api.KindMethodNotFound,
			e.details(), e.way()), true
	}
	if e, ok := errors.AsType[*agentError](err); ok {
		if errors.Is(e.err, supervisor.ErrExists) {
			return refuse(200, jsonrpc.CodeInvalidParams, "Agent already exists: "+e.id, api.KindAgentExists,
				"", "Use the agent that is there (create_agent with if_exists \"use\" finds it), or destroy it first."), true
		}
		details := "no agent of that name runs, and none is saved"
		if errors.Is(e.err, errDestroyed) {
			details = "the agent was destroyed while the request was under way"
		}
		return refuse(http.StatusNotFound, jsonrpc.CodeInvalidParams, "Agent not found: "+e.id, api.KindAgentNotFound,
			details, "See list_agents, or create the agent with create_agent."), true
	}
	if e, ok := errors.AsType[*differsError](err); ok {
		return refuse(200, jsonrpc.CodeInvalidParams, "Agent already exists: "+e.id, api.KindAgentExists, e.Error(),
			"Leave out what differs, change it by the agent's own methods, or destroy the agent first."), true
	}
	if e, ok := errors.AsType[*sessions.Error](err); ok {
		return explainSession(e), true
	}
	if e, ok := errors.AsType[*GoneError](err); ok {
		return refuse(200, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindDirectoryGone, e.Error(), e.way()), true
	}
	if e, ok := errors.AsType[*runningError](err); ok {
		return refuse(200, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindAgentRunning, e.Error(), e.way), true
	}
	if e, ok := errors.AsType[*supervisor.CycleError](err); ok {
		return refuse(200, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindWouldDeadlock, e.Error(),
			"Answer first, and let the other agent ask again."), true
	}
	if e, ok := errors.AsType[*deniedError](err); ok {
		return refuse(200, jsonrpc.CodeNotAuthenticated, "Not permitted", api.KindNotPermitted, e.Error()), true
	}
	if e, ok := errors.AsType[*treeError](err); ok {
		return refuse(200, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindTooManyAgents, e.Error(),
			"Destroy an agent that is not needed any more, or create the first of them with a higher limits.agents."), true
	}
	if errors.Is(err, auth.ErrTooMany) {
		return refuse(200, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindTooManyKeys, err.Error(), "See list_keys and revoke_key."), true
	}
	return explainProcess(err)
}

// explainProcess is the part of the table for what agents' processes did.
func explainProcess(err error) (refusal, bool) {
	if e, ok := errors.AsType[*supervisor.SessionError](err); ok {
		reason := sessions.ErrInUse
		if !e.InUse {
			reason = fmt.Errorf("%w: %s", sessions.ErrUnreadable, e.Reason)
		}
		return explainSession(&sessions.Error{Name: e.Name, Err: reason}), true
	}
	if e, ok := errors.AsType[*supervisor.StartError](err); ok {
		if _, alien := errors.AsType[*supervisor.HandshakeError](e); alien {
			return refuse(200, jsonrpc.CodeServerError, "Execution failed", api.KindStartFailed, "start the agent's process: "+e.Error(),
				"Install nexus and nexus-child of the same version."), true
		}
		return refuse(200, jsonrpc.CodeServerError, "Execution failed", api.KindStartFailed, "start the agent's process: "+e.Error(),
			"Correct what the process complains of, then send it again.").limited(e.Exit), true
	}
	if e, ok := errors.AsType[*supervisor.CrashError](err); ok {
		details := e.Error()
		if e.Exit != nil && e.Exit.Stderr != "" {
			details += "; its last words: " + e.Exit.Stderr
		}
		return refuse(200, jsonrpc.CodeServerError, "Execution failed", api.KindChildCrashed, details,
			"Send it again with a new request_id, or from the start with on_crash retry: the agent comes back with its conversation.").
			limited(e.Exit), true
	}
	if e, ok := errors.AsType[*supervisor.CommandError](err); ok {
		return refuse(200, jsonrpc.CodeInvalidParams, "Invalid params: too large for the agent", api.KindInvalidParams, e.Error(),
			"Send less, or attach files by their path."), true
	}
	if e, ok := errors.AsType[*supervisor.ChildError](err); ok && (e.Reason == protocol.StorageFull || e.Reason == protocol.NotSaved) {
		return unsavedChange(e), true
	} else if ok {
		return refuse(200, jsonrpc.CodeInternalError, e.Message, api.KindExecutionError, "",
			"Correct what the message names, then send it again."), true
	}
	return refusal{}, false
}

// unsavedChange is for a change of an agent that its session cannot hold.
func unsavedChange(e *supervisor.ChildError) refusal {
	kind, way := api.KindStorageFull, "Make room on the disk of the server's home, then send it again"
	if e.Reason == protocol.NotSaved {
		kind, way = api.KindNotRecorded, "See that the agent's session can be written, then send it again"
	}
	if e.Holds == nil {
		way += ": nothing has changed."
	} else {
		way += ": what it takes from the agent holds already."
	}
	return refuse(200, jsonrpc.CodeUnavailable, "Resource unavailable", kind, e.Message, way)
}

// explainSession is the part of the table for saved sessions.
func explainSession(e *sessions.Error) refusal {
	_, damaged := errors.AsType[*transcript.LineError](e.Err)
	switch {
	case errors.Is(e.Err, sessions.ErrNotFound):
		return refuse(http.StatusNotFound, jsonrpc.CodeInvalidParams, "Session not found: "+clipName(e.Name), api.KindSessionNotFound,
			"no session of that name is saved", "See list_sessions.")
	case errors.Is(e.Err, sessions.ErrExists):
		return refuse(200, jsonrpc.CodeInvalidParams, "Session already exists: "+e.Name, api.KindSessionExists,
			"there is a session of that name", "Choose another name, or delete or rename the one that is there.")
	case errors.Is(e.Err, sessions.ErrInUse):
		return refuse(200, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindSessionInUse,
			"a process has session "+e.Name+" open", "End the nexus-child that has it open.")
	case damaged, errors.Is(e.Err, sessions.ErrUnreadable):
		return refuse(200, jsonrpc.CodeServerError, "Session damaged: "+e.Name, api.KindSessionDamaged, e.Err.Error(),
			"Correct its file, or delete it with delete_session.")
	}
	return otherwise(e)
}

// The refusals of the checks that come before any method (SPEC §6.1).
var (
	badTarget = refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"the request target is not a path", "Ask for a path, as in POST /rpc.")
	badHost = refuse(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Host not allowed", api.KindForbiddenHost,
		"the Host header does not name this server", "Use 127.0.0.1, localhost or [::1] with the server's port.")
	badOrigin = refuse(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Origin not allowed", api.KindForbiddenOrigin,
		"requests from web pages are refused", "Call from a program that sends no Origin header.")
	badMethod = refuse(http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, "Method not allowed", api.KindMethodNotAllowed,
		"the path does not take this HTTP method", "See the Allow header.")
	noKey = refuse(http.StatusUnauthorized, jsonrpc.CodeNotAuthenticated, "Authorization header required", api.KindAuthenticationRequired,
		"no API key was sent", "Send Authorization: Bearer KEY; the server's key file holds the key.")
	wrongKey = refuse(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Invalid API key", api.KindAuthenticationFailed,
		"the API key is not this server's", "Read the key file again: a server makes a new key when it starts.")
	wrongCode = refuse(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Invalid code", api.KindAuthenticationFailed,
		"the code was used, is older than a minute, or was not made by this server", "Run nexus open again, or paste the server's key.")
	badChallenge = refuse(http.StatusBadRequest, jsonrpc.CodeInvalidParams, "Invalid parameter challenge", api.KindInvalidParams,
		"a challenge is 16 to 128 letters, digits, hyphens and underscores", "Send one that nobody can foresee.")
	unsigned = refuse(http.StatusUnauthorized, jsonrpc.CodeNotAuthenticated, "Signature required", api.KindAuthenticationRequired,
		"this server wants each request signed", "Sign each request by its member auth.")
	tooMany = refuse(http.StatusTooManyRequests, jsonrpc.CodeRateLimited, "Too many requests", api.KindRateLimited,
		"more requests came than may be answered", "Wait for as many seconds as Retry-After says.")
	unknownPath = refuse(http.StatusNotFound, jsonrpc.CodeInvalidParams,
		"Not found. Use POST /, POST /rpc or POST /agent/{id}.", api.KindNotFound, "there is nothing at this path",
		"Use POST / or /rpc for global methods and POST /agent/{id} for those of an agent.")
	tooLarge = refuse(http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest, "Request body too large", api.KindBodyTooLarge,
		fmt.Sprintf("a body has at most %d bytes", MaxBody), "Send less, or attach files by their path.")
	needlessBody = refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"a GET or HEAD has no body here", "Ask without a body.")
	badGzip = refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"the body is not what its Content-Encoding says", "Send it packed by gzip, or as it is and without Content-Encoding.")
	tooSlow = refuse(http.StatusRequestTimeout, jsonrpc.CodeInvalidRequest, "Request timeout", api.KindRequestTimeout,
		"the request did not arrive in time", "Send the whole request at once.")
	brokenBody = refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"the body did not arrive whole")
	malformedHTTP = refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"the request is not well-formed HTTP/1.1")
	positional = refuse(http.StatusOK, jsonrpc.CodeInvalidParams, "Invalid params: want an object, have an array", api.KindInvalidParams,
		"parameters are given by name", "Send params as an object.")
	answerTooLarge = refuse(http.StatusOK, jsonrpc.CodeServerError, "Response too large", api.KindResponseTooLarge,
		fmt.Sprintf("the results of a batch have at most %d bytes together", MaxBatchAnswer), "Ask in smaller batches.")
	draining = explain(errNotAccepted)
)

// badType refuses a body for what its Content-Type declares, badEncoding for how it
// is packed.
func badType(declared string) refusal {
	return unsupported("the body is declared as "+strconv.Quote(clipName(declared)), "Send Content-Type: application/json, once.")
}

func badEncoding(encoding string) refusal {
	return unsupported("Content-Encoding "+strconv.Quote(clipName(encoding))+" is not understood: gzip alone is",
		"Send the body packed by gzip, or as it is and without Content-Encoding.")
}

func unsupported(details, way string) refusal {
	return refuse(http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "Unsupported media type", api.KindUnsupportedMediaType,
		details, way)
}

// badSignature refuses signed requests, for a reason that says nothing about keys.
func badSignature(reason string) refusal {
	return refuse(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Invalid signature", api.KindAuthenticationFailed, reason,
		"Sign each request once, with its own timestamp.")
}

// overRate refuses a batch that no waiting makes good.
func overRate(n, perMinute int) refusal {
	return refuse(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		fmt.Sprintf("a batch of %d requests is more than the %d a minute that a key may make", n, perMinute), "Ask in smaller batches.")
}

// manyStreams refuses one more stream of events, by which bound.
func manyStreams(full string) refusal {
	return refuse(http.StatusServiceUnavailable, jsonrpc.CodeUnavailable, "Resource unavailable", api.KindTooManyStreams, full,
		"Follow all agents in one stream, GET /events, or close one.")
}

// badQuery refuses the query of a GET.
func badQuery(message, way string) refusal {
	return refuse(http.StatusBadRequest, jsonrpc.CodeInvalidParams, message, api.KindInvalidParams, message, way)
}

// badEvents refuses the parameters of an event stream; source says what is wrong.
func badEvents(source, want, way string) refusal {
	return refuse(http.StatusBadRequest, jsonrpc.CodeInvalidParams, "Invalid "+source+": want "+want, api.KindInvalidParams,
		source+" says from where on, or of what, the stream tells", way)
}
