package acpserve

import (
	"context"
	"errors"
	"fmt"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/strict"
)

// requestError is a request of the editor that cannot be carried out.
type requestError struct {
	code    jsonrpc.Code
	problem string
}

func (e *requestError) Error() string { return e.problem }

func invalid(format string, args ...any) error {
	return &requestError{jsonrpc.CodeInvalidParams, fmt.Sprintf(format, args...)}
}

func notFound(session string) error {
	return &requestError{codeNotFound, fmt.Sprintf("there is no session %.64q: session/list has those that there are", session)}
}

// explained is the error as the editor reads it. Codes of the server are not passed on, as
// the protocol has other meanings for some of them.
func explained(err error) *jsonrpc.Error {
	e := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	if refused, ok := errors.AsType[*client.RPCError](err); ok {
		e.Data = &refused.Data
		switch api.ErrorKind(refused.Data.Type) {
		case api.KindAgentNotFound, api.KindSessionNotFound:
			e.Code = codeNotFound
		case api.KindInvalidParams:
			e.Code = jsonrpc.CodeInvalidParams
		default:
		}
		return e
	}
	if own, ok := errors.AsType[*requestError](err); ok {
		e.Code = own.code
	} else if _, ok := errors.AsType[*strict.Error](err); ok {
		e.Code = jsonrpc.CodeInvalidParams
	} else if _, ok := errors.AsType[*api.ParamError](err); ok {
		e.Code = jsonrpc.CodeInvalidParams
	} else if errors.Is(err, context.Canceled) {
		e.Code, e.Message = codeCancelled, "the request was cancelled"
	} else if _, ok := errors.AsType[*client.ConnError](err); ok {
		e.Message = "the server has ended, and the next request starts it again: " + e.Message
	}
	return e
}
