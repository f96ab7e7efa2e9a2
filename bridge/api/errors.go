package api

import (
	"fmt"

	"nexus.internal/protocol/jsonrpc"
)

// ErrorKind is the data.type of an error (SPEC §6.2).
type ErrorKind string

// The kinds of errors that a method gives.
const (
	KindInvalidParams    ErrorKind = "INVALID_PARAMS"
	KindMethodNotFound   ErrorKind = "METHOD_NOT_FOUND"
	KindNotPermitted     ErrorKind = "NOT_PERMITTED"
	KindServerDraining   ErrorKind = "SERVER_DRAINING"
	KindResponseTooLarge ErrorKind = "RESPONSE_TOO_LARGE"
	KindInternalError    ErrorKind = "INTERNAL_ERROR"
	// Of a cluster of machines.
	KindNodeUnreachable           ErrorKind = "NODE_UNREACHABLE"
	KindNoQuorum                  ErrorKind = "NO_QUORUM"
	KindAgentExists               ErrorKind = "AGENT_EXISTS"
	KindAgentNotFound             ErrorKind = "AGENT_NOT_FOUND"
	KindAgentRunning              ErrorKind = "AGENT_RUNNING"
	KindAgentBusy                 ErrorKind = "AGENT_BUSY"
	KindAgentFailed               ErrorKind = "AGENT_FAILED"
	KindAgentStopped              ErrorKind = "AGENT_STOPPED"
	KindQueueFull                 ErrorKind = "QUEUE_FULL"
	KindTooManyAgents             ErrorKind = "TOO_MANY_AGENTS"
	KindTooManyKeys               ErrorKind = "TOO_MANY_KEYS"
	KindTooManyFiles              ErrorKind = "TOO_MANY_FILES"
	KindWouldDeadlock             ErrorKind = "WOULD_DEADLOCK"
	KindRequestIDConflict         ErrorKind = "REQUEST_ID_CONFLICT"
	KindPermissionRequestNotFound ErrorKind = "PERMISSION_REQUEST_NOT_FOUND"
	KindSessionNotFound           ErrorKind = "SESSION_NOT_FOUND"
	KindSessionExists             ErrorKind = "SESSION_EXISTS"
	KindSessionDamaged            ErrorKind = "SESSION_DAMAGED"
	KindSessionInUse              ErrorKind = "SESSION_IN_USE"
	KindDirectoryGone             ErrorKind = "DIRECTORY_GONE"
	KindStorageFull               ErrorKind = "STORAGE_FULL"
	KindNotRecorded               ErrorKind = "NOT_RECORDED"
	KindStartFailed               ErrorKind = "START_FAILED"
	KindChildCrashed              ErrorKind = "CHILD_CRASHED"
	KindTimeout                   ErrorKind = "TIMEOUT"
	KindExecutionError            ErrorKind = "EXECUTION_ERROR"
	KindCancelled                 ErrorKind = "CANCELLED"
	KindCheckerNotFound           ErrorKind = "CHECKER_NOT_FOUND"
	KindPlanRecordDamaged         ErrorKind = "PLAN_RECORD_DAMAGED"
	// KindUnsupported is of an agent of another make whose program does not offer what was asked.
	KindUnsupported ErrorKind = "UNSUPPORTED"
	// Of the services of models. That they want fewer requests is KindRateLimited, too.
	KindCredentials    ErrorKind = "CREDENTIALS"
	KindUnreachable    ErrorKind = "UNREACHABLE"
	KindBudgetExceeded ErrorKind = "BUDGET_EXCEEDED"
	KindContentRefused ErrorKind = "CONTENT_REFUSED"
)

// The kinds of errors that a request gets before a method is found (SPEC §6.1).
const (
	KindInvalidRequest         ErrorKind = "INVALID_REQUEST"
	KindParseError             ErrorKind = "PARSE_ERROR"
	KindRequestTimeout         ErrorKind = "REQUEST_TIMEOUT"
	KindMethodNotAllowed       ErrorKind = "METHOD_NOT_ALLOWED"
	KindForbiddenHost          ErrorKind = "FORBIDDEN_HOST"
	KindForbiddenOrigin        ErrorKind = "FORBIDDEN_ORIGIN"
	KindAuthenticationRequired ErrorKind = "AUTHENTICATION_REQUIRED"
	KindAuthenticationFailed   ErrorKind = "AUTHENTICATION_FAILED"
	KindNotFound               ErrorKind = "NOT_FOUND"
	KindBodyTooLarge           ErrorKind = "BODY_TOO_LARGE"
	KindUnsupportedMediaType   ErrorKind = "UNSUPPORTED_MEDIA_TYPE"
	KindRateLimited            ErrorKind = "RATE_LIMITED"
	KindTooManyStreams         ErrorKind = "TOO_MANY_STREAMS"
)

// ErrorRow is a row of the table of errors.
type ErrorRow struct {
	Status  int // of HTTP, unless the request is part of a batch
	Code    jsonrpc.Code
	Message string
}

// Errors are the kinds that a method gives, by what goes with each. KindExecutionError has
// another code, -32603, where an agent's process reported the failure. It must not be
// changed.
var Errors = map[ErrorKind]ErrorRow{
	KindInvalidParams:             {200, jsonrpc.CodeInvalidParams, "Invalid params"},
	KindMethodNotFound:            {200, jsonrpc.CodeMethodNotFound, "Method not found"},
	KindNotPermitted:              {200, jsonrpc.CodeNotAuthenticated, "Not permitted"},
	KindRateLimited:               {429, jsonrpc.CodeRateLimited, "Too many requests"},
	KindServerDraining:            {503, jsonrpc.CodeUnavailable, unavailable},
	KindResponseTooLarge:          {200, jsonrpc.CodeServerError, "Response too large"},
	KindInternalError:             {200, jsonrpc.CodeInternalError, "Internal error"},
	KindNodeUnreachable:           {503, jsonrpc.CodeUnavailable, unavailable},
	KindNoQuorum:                  {503, jsonrpc.CodeUnavailable, unavailable},
	KindAgentExists:               {200, jsonrpc.CodeInvalidParams, "Agent already exists"},
	KindAgentNotFound:             {404, jsonrpc.CodeInvalidParams, "Agent not found"},
	KindAgentRunning:              {200, jsonrpc.CodeUnavailable, unavailable},
	KindAgentBusy:                 {200, jsonrpc.CodeUnavailable, unavailable},
	KindAgentFailed:               {200, jsonrpc.CodeUnavailable, unavailable},
	KindAgentStopped:              {200, jsonrpc.CodeUnavailable, unavailable},
	KindQueueFull:                 {200, jsonrpc.CodeUnavailable, unavailable},
	KindTooManyAgents:             {200, jsonrpc.CodeUnavailable, unavailable},
	KindTooManyKeys:               {200, jsonrpc.CodeUnavailable, unavailable},
	KindTooManyFiles:              {200, jsonrpc.CodeUnavailable, unavailable},
	KindWouldDeadlock:             {200, jsonrpc.CodeUnavailable, unavailable},
	KindRequestIDConflict:         {200, jsonrpc.CodeInvalidParams, "Invalid parameter request_id: was used before with other content"},
	KindPermissionRequestNotFound: {200, jsonrpc.CodeInvalidParams, "Permission request not found"},
	KindSessionNotFound:           {404, jsonrpc.CodeInvalidParams, "Session not found"},
	KindSessionExists:             {200, jsonrpc.CodeInvalidParams, "Session already exists"},
	KindSessionDamaged:            {200, jsonrpc.CodeServerError, "Session damaged"},
	KindSessionInUse:              {200, jsonrpc.CodeUnavailable, unavailable},
	KindDirectoryGone:             {200, jsonrpc.CodeUnavailable, unavailable},
	KindStorageFull:               {200, jsonrpc.CodeUnavailable, unavailable},
	KindNotRecorded:               {200, jsonrpc.CodeUnavailable, unavailable},
	KindStartFailed:               {200, jsonrpc.CodeServerError, "Execution failed"},
	KindChildCrashed:              {200, jsonrpc.CodeServerError, "Execution failed"},
	KindTimeout:                   {200, jsonrpc.CodeServerError, "Execution timeout"},
	KindExecutionError:            {200, jsonrpc.CodeServerError, "Execution failed"},
	KindCancelled:                 {200, jsonrpc.CodeServerError, "Execution failed"},
	KindCheckerNotFound:           {200, jsonrpc.CodeUnavailable, unavailable},
	KindPlanRecordDamaged:         {200, jsonrpc.CodeServerError, "Execution failed"},
	KindUnsupported:               {200, jsonrpc.CodeMethodNotFound, "Not offered by this agent"},
	KindCredentials:               {200, jsonrpc.CodeNotAuthenticated, "The model's service refused the key"},
	KindUnreachable:               {200, jsonrpc.CodeUnavailable, unavailable},
	KindBudgetExceeded:            {200, jsonrpc.CodeUnavailable, unavailable},
	KindContentRefused:            {200, jsonrpc.CodeServerError, "Execution failed"},
}

const unavailable = "Resource unavailable"

// CommonErrors are those that any method gives.
var CommonErrors = []ErrorKind{
	KindInvalidParams, KindMethodNotFound, KindNotPermitted, KindRateLimited, KindServerDraining, KindResponseTooLarge,
	KindTooManyFiles, KindInternalError, KindNodeUnreachable, KindNoQuorum,
}

// Errors that several methods share.
var (
	// childErrors are of all that an agent's process is asked for.
	childErrors = []ErrorKind{
		KindAgentNotFound, KindAgentFailed, KindAgentStopped, KindQueueFull, KindSessionDamaged, KindSessionInUse, KindDirectoryGone,
		KindStartFailed, KindChildCrashed, KindTimeout, KindExecutionError, KindNotRecorded,
		KindUnsupported,
	}
	changeErrors = append(childErrors[:len(childErrors):len(childErrors)], KindStorageFull)
	turnErrors   = append(modelErrors[:len(modelErrors):len(modelErrors)], KindAgentBusy, KindRequestIDConflict, KindWouldDeadlock, KindStorageFull)
	// modelErrors are of all that asks a model's service.
	modelErrors = append(childErrors[:len(childErrors):len(childErrors)], KindCredentials, KindUnreachable, KindBudgetExceeded, KindContentRefused)
)

// Error is an error that a client gets with the code and the message of its kind.
type Error struct {
	Kind ErrorKind
	// About goes behind the message, as the name in "Agent not found: worker-1"; "" for
	// nothing.
	About string
	// Details is one sentence more; "" for none.
	Details string
	// Suggestions say what can be done.
	Suggestions []string
	// Limit names the limit that ended the agent's process or its turn; "" for none.
	Limit string
	// Err is what the error wraps; nil for nothing.
	Err error
}

func (e *Error) Error() string {
	if e.Details != "" {
		return e.Details
	}
	message := Errors[e.Kind].Message
	if e.About != "" {
		message += ": " + e.About
	}
	return message
}

func (e *Error) Unwrap() error { return e.Err }

// Denied says why a caller may not have what it asks for.
func Denied(format string, args ...any) *Error {
	return &Error{Kind: KindNotPermitted, Details: fmt.Sprintf(format, args...)}
}
