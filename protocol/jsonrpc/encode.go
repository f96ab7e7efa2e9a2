package jsonrpc

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// AppendResponse appends the envelope of r to dst: jsonrpc, id and one of
// result and error, in this order. Result must be valid JSON, it is written as
// it stands. An r without an id is written with null. Bytes of a message that
// are not UTF-8 become U+FFFD.
func AppendResponse(dst []byte, r Response) []byte {
	id := r.ID
	if id.IsZero() {
		id = NullID
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id.raw...)
	switch {
	case r.Error != nil:
		raw, err := json.Marshal(r.Error, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			panic(fmt.Sprintf("jsonrpc: encode error %d: %v", r.Error.Code, err)) // numbers and strings do not fail
		}
		dst = append(append(dst, `,"error":`...), raw...)
	case r.Result == nil:
		dst = append(dst, `,"result":null`...)
	default:
		dst = append(append(dst, `,"result":`...), r.Result...)
	}
	return append(dst, '}')
}

// AppendNotification appends a notification to dst: jsonrpc, method and the
// JSON of params, which is absent if params is nil. It fails if params cannot
// be written as a JSON object.
func AppendNotification(dst []byte, method string, params any) ([]byte, error) {
	request := Request{Method: method}
	if params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			return dst, fmt.Errorf("encode %s: %w", method, err)
		}
		request.Params = raw
	}
	return AppendRequest(dst, request)
}

// AppendRequest appends the envelope of r to dst: jsonrpc, method, and where
// they are set params, id and auth. It fails if the method is not UTF-8 or the
// params are no JSON object (or array, if Positional).
func AppendRequest(dst []byte, r Request) ([]byte, error) {
	method, err := json.Marshal(r.Method)
	if err != nil {
		return dst, fmt.Errorf("encode method: %w", err)
	}
	if want := structure(r.Positional); r.Params != nil && (r.Params.Kind() != want || !r.Params.IsValid()) {
		return dst, fmt.Errorf("encode %s: params do not begin with %q or are not JSON", r.Method, byte(want))
	}
	if r.Auth != nil && !r.Auth.IsValid() {
		return dst, fmt.Errorf("encode %s: auth is not JSON", r.Method)
	}
	dst = append(append(dst, `{"jsonrpc":"2.0","method":`...), method...)
	if r.Params != nil {
		dst = append(append(dst, `,"params":`...), r.Params...)
	}
	if !r.ID.IsZero() {
		dst = append(append(dst, `,"id":`...), r.ID.raw...)
	}
	if r.Auth != nil {
		dst = append(append(dst, `,"auth":`...), r.Auth...)
	}
	return append(dst, '}'), nil
}

func structure(positional bool) jsontext.Kind {
	if positional {
		return '['
	}
	return '{'
}
