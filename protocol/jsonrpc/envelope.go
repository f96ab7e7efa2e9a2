package jsonrpc

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Version is the value of every envelope's "jsonrpc" member.
const Version = "2.0"

// Code is the number of an [Error].
type Code int

// The codes in use. Those above -32100 and below -32000 are this project's
// (SPEC §6.2); the others are the specification's.
const (
	CodeParseError       Code = -32700 // the body is not JSON
	CodeInvalidRequest   Code = -32600 // it is JSON, but no request
	CodeMethodNotFound   Code = -32601
	CodeInvalidParams    Code = -32602
	CodeInternalError    Code = -32603
	CodeServerError      Code = -32000 // a turn failed, ran out of time or lost its child
	CodeUnavailable      Code = -32001 // a queue is full, an agent failed, the server is draining
	CodeRateLimited      Code = -32002
	CodeNotAuthenticated Code = -32003 // key, Host or Origin
)

// The values of ErrorData.Type that this package itself gives.
const (
	TypeParseError     = "PARSE_ERROR"
	TypeInvalidRequest = "INVALID_REQUEST"
)

// ID identifies a request. It is the JSON text of a string, a number or null,
// as it was written. The zero ID is that of a notification: none. IDs compare
// with ==, by their text.
type ID struct{ raw string }

// NullID is the id of a response to what could not be read.
var NullID = ID{raw: "null"}

// StringID returns the id that is the string s. Bytes that are not UTF-8
// become U+FFFD.
func StringID(s string) ID {
	quoted, err := json.Marshal(s, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(fmt.Sprintf("jsonrpc: quote id: %v", err)) // no string fails
	}
	return ID{raw: string(quoted)}
}

// NumberID returns the id that is the number n.
func NumberID(n int64) ID { return ID{raw: strconv.FormatInt(n, 10)} }

// IsZero reports that there is no id.
func (id ID) IsZero() bool { return id.raw == "" }

// String is the id's JSON text; "" if there is none.
func (id ID) String() string { return id.raw }

// Request is a call, or a notification if it has no id.
type Request struct {
	Method string
	// Params is the JSON of the params member, nil if it is absent: an object,
	// or an array if Positional is set.
	Params jsontext.Value
	// Positional says that the params stand in an array. Methods of this
	// project take none of these (CodeInvalidParams).
	Positional bool
	ID         ID
	// Auth is the JSON of the auth member, nil if it is absent. It is not of
	// the specification; SPEC §6.5 gives it its meaning.
	Auth jsontext.Value
}

// IsNotification reports that nobody wants an answer. A request with the id
// null is no notification.
func (r Request) IsNotification() bool { return r.ID.IsZero() }

// Response answers a request: with Error if that is set, else with Result.
type Response struct {
	ID ID
	// Result is one JSON value; nil is written as null.
	Result jsontext.Value
	Error  *Error
}

// Error is why a request was not fulfilled.
type Error struct {
	Code    Code       `json:"code"`
	Message string     `json:"message"`
	Data    *ErrorData `json:"data,omitzero"`
}

// Error is the message with the code behind it.
func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// Reason is what people read of an [Error]: its message, and its details where they
// add something.
func Reason(message, details string) string {
	switch {
	case strings.Contains(message, details):
		return message
	case strings.Contains(details, message):
		return details
	}
	return message + ": " + details
}

// ErrorData says more about an [Error], for programs and for people.
type ErrorData struct {
	// Type is a word in capitals, as in TIMEOUT.
	Type string `json:"type" wire:"default"`
	// Details is one sentence that adds to the message; "" if the message says all.
	Details string `json:"details" wire:"default"`
	// RecoverySuggestions are sentences; nil is written as [].
	RecoverySuggestions []string `json:"recovery_suggestions" wire:"default"`
	// Limit is that which ended the agent's process, as in "memory limit 512
	// MiB"; "" if none did.
	Limit string `json:"limit,omitzero" wire:"default"`
	// RetryAfterS is how long a model's service wants to be left alone, in seconds; 0 if it does not say.
	RetryAfterS float64 `json:"retry_after_s,omitzero" wire:"default"`
	// Partial is what had been said when it failed, or the head of that.
	Partial string `json:"partial,omitzero" wire:"default"`
	// AgentID and RequestID are of the turn that failed, of a task or a plan; "" of others.
	AgentID   string `json:"agent_id,omitzero" wire:"default"`
	RequestID string `json:"request_id,omitzero" wire:"default"`
	// Replayed says that this is what came of the request when it was made first.
	Replayed bool `json:"replayed,omitzero" wire:"default"`
	// Outcome is that of a send that was accepted, where the server went down.
	Outcome string `json:"outcome,omitzero" wire:"default"`
}
