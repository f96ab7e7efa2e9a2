package api

import "nexus.internal/protocol/jsonrpc"

// ErrorKind is the data.type of an error (SPEC §6.2).
type ErrorKind string

// The kinds of errors that a method gives.
const (
	KindInvalidParams             ErrorKind = "INVALID_PARAMS"
	KindMethodNotFound            ErrorKind = "METHOD_NOT_FOUND"
	KindNotPermitted              ErrorKind = "NOT_PERMITTED"
	KindServerDraining            ErrorKind = "SERVER_DRAINING"
	KindResponseTooLarge          ErrorKind = "RESPONSE_TOO_LARGE"
	KindInternalError             ErrorKind = "INTERNAL_ERROR"
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
	KindRoleNotConfigured         ErrorKind = "ROLE_NOT_CONFIGURED"
	KindCheckerNotFound           ErrorKind = "CHECKER_NOT_FOUND"
	KindPlanRecordDamaged         ErrorKind = "PLAN_RECORD_DAMAGED"
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

// Errors are the kinds that a method gives, by the code and the message that go with
// each. Some messages go on with a name. KindExecutionError has another code, -32603,
// where an agent's process reported the failure.
var Errors = map[ErrorKind]struct {
	Code    jsonrpc.Code
	Message string
}{
	KindInvalidParams:             {jsonrpc.CodeInvalidParams, "Invalid params"},
	KindMethodNotFound:            {jsonrpc.CodeMethodNotFound, "Method not found"},
	KindNotPermitted:              {jsonrpc.CodeNotAuthenticated, "Not permitted"},
	KindRateLimited:               {jsonrpc.CodeRateLimited, "Too many requests"},
	KindServerDraining:            {jsonrpc.CodeUnavailable, unavailable},
	KindResponseTooLarge:          {jsonrpc.CodeServerError, "Response too large"},
	KindInternalError:             {jsonrpc.CodeInternalError, "Internal error"},
	KindAgentExists:               {jsonrpc.CodeInvalidParams, "Agent already exists"},
	KindAgentNotFound:             {jsonrpc.CodeInvalidParams, "Agent not found"},
	KindAgentRunning:              {jsonrpc.CodeUnavailable, unavailable},
	KindAgentBusy:                 {jsonrpc.CodeUnavailable, unavailable},
	KindAgentFailed:               {jsonrpc.CodeUnavailable, unavailable},
	KindAgentStopped:              {jsonrpc.CodeUnavailable, unavailable},
	KindQueueFull:                 {jsonrpc.CodeUnavailable, unavailable},
	KindTooManyAgents:             {jsonrpc.CodeUnavailable, unavailable},
	KindTooManyKeys:               {jsonrpc.CodeUnavailable, unavailable},
	KindTooManyFiles:              {jsonrpc.CodeUnavailable, unavailable},
	KindWouldDeadlock:             {jsonrpc.CodeUnavailable, unavailable},
	KindRequestIDConflict:         {jsonrpc.CodeInvalidParams, "Invalid parameter request_id: was used before with other content"},
	KindPermissionRequestNotFound: {jsonrpc.CodeInvalidParams, "Permission request not found"},
	KindSessionNotFound:           {jsonrpc.CodeInvalidParams, "Session not found"},
	KindSessionExists:             {jsonrpc.CodeInvalidParams, "Session already exists"},
	KindSessionDamaged:            {jsonrpc.CodeServerError, "Session damaged"},
	KindSessionInUse:              {jsonrpc.CodeUnavailable, unavailable},
	KindDirectoryGone:             {jsonrpc.CodeUnavailable, unavailable},
	KindStorageFull:               {jsonrpc.CodeUnavailable, unavailable},
	KindNotRecorded:               {jsonrpc.CodeUnavailable, unavailable},
	KindStartFailed:               {jsonrpc.CodeServerError, "Execution failed"},
	KindChildCrashed:              {jsonrpc.CodeServerError, "Execution failed"},
	KindTimeout:                   {jsonrpc.CodeServerError, "Execution timeout"},
	KindExecutionError:            {jsonrpc.CodeServerError, "Execution failed"},
	KindCancelled:                 {jsonrpc.CodeServerError, "Execution failed"},
	KindRoleNotConfigured:         {jsonrpc.CodeUnavailable, unavailable},
	KindCheckerNotFound:           {jsonrpc.CodeUnavailable, unavailable},
	KindPlanRecordDamaged:         {jsonrpc.CodeServerError, "Execution failed"},
}

const unavailable = "Resource unavailable"

// CommonErrors are those that any method gives.
var CommonErrors = []ErrorKind{
	KindInvalidParams, KindMethodNotFound, KindNotPermitted, KindRateLimited, KindServerDraining, KindResponseTooLarge,
	KindTooManyFiles, KindInternalError,
}

// Errors that several methods share.
var (
	// childErrors are of all that an agent's process is asked for.
	childErrors = []ErrorKind{
		KindAgentNotFound, KindAgentFailed, KindAgentStopped, KindQueueFull, KindSessionDamaged, KindSessionInUse, KindDirectoryGone,
		KindStartFailed, KindChildCrashed, KindTimeout, KindExecutionError, KindNotRecorded,
	}
	changeErrors = append(childErrors[:len(childErrors):len(childErrors)], KindStorageFull)
	turnErrors   = append(childErrors[:len(childErrors):len(childErrors)], KindAgentBusy, KindRequestIDConflict, KindWouldDeadlock)
)
