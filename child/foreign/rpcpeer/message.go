package rpcpeer

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
)

// Codes of errors, of JSON-RPC 2.0 §5.1 and of LSP, from which the protocols have them.
const (
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeBusy           = -32001
)

// Error is that of a response.
type Error struct {
	Code    int64          `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data,omitzero"`
}

// Error is the message, and what data says in words, if anything.
func (e *Error) Error() string {
	data, text := gjson.ParseBytes(e.Data), e.Message
	for _, words := range []gjson.Result{data, data.Get("details"), data.Get("message")} {
		if words.Type == gjson.String && words.Str != "" && words.Str != e.Message {
			text += ": " + words.Str
			break
		}
	}
	return textcut.Clip(fmt.Sprintf("%s (%d)", text, e.Code), 2<<10)
}

// NotFound is the error of a method that we do not have.
func NotFound(method string) *Error {
	return &Error{Code: CodeMethodNotFound, Message: fmt.Sprintf("the client has no method %.64q", method)}
}

// kind is what a message is.
type kind int

const (
	notification kind = iota
	request
	response
)

// incoming is a message of the program. It does not share memory with the line.
type incoming struct {
	Message
	is      kind
	id      jsontext.Value // as the program wrote it
	result  gjson.Result
	failure *Error
}

// decode reads a message; false if it is none. What JavaScript programs make of text that they cut
// within a character (half of a surrogate pair) is replaced rather than the message lost.
func decode(line []byte) (m incoming, ok bool) {
	if strict.Valid(line) != nil {
		mended := jsontext.Value(line).Clone()
		if mended.Format(jsontext.AllowInvalidUTF8(true)) != nil || strict.Valid(mended) != nil {
			return m, false
		}
		line = mended
	}
	object := gjson.ParseBytes(line) // copies the line
	if !object.IsObject() {
		return m, false
	}
	id, method, failure := object.Get("id"), object.Get("method"), object.Get("error")
	m.Message, m.result = Message{method.Str, object.Get("params"), object.Raw}, object.Get("result")
	hasID := id.Type == gjson.Number || id.Type == gjson.String
	if hasID {
		m.id = jsontext.Value(id.Raw)
	}
	switch {
	case method.Type == gjson.String && hasID:
		m.is = request
	case method.Type == gjson.String:
		m.is = notification
	case hasID && failure.IsObject():
		m.is = response
		m.failure = &Error{Code: code(failure.Get("code")), Message: failure.Get("message").Str}
		if data := failure.Get("data"); data.Exists() {
			m.failure.Data = jsontext.Value(data.Raw)
		}
	case hasID && m.result.Exists():
		m.is = response
	default:
		return m, false
	}
	return m, true
}

// code is that of an error; 0 for what is none.
func code(value gjson.Result) int64 {
	n, err := strconv.ParseInt(value.Raw, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
