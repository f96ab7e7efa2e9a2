// Package tokencount counts the tokens of requests to models and of their answers, as
// bytes that pass by: by the usage that the service states, and where it states none by
// an estimate. The server charges by it, and the child reports by it, so both have the
// same numbers.
//
//	var asked tokencount.Request
//	asked.Write(body)
//	answer := tokencount.Answer{Form: tokencount.EventStream}
//	answer.Write(piece) // and so on
//	used := answer.Count(asked.Tokens())
//
// It knows the usage objects of OpenAI's and Anthropic's interfaces and keeps no text.
// Neither type is safe for concurrent use. See SPEC.md §3.5 and §5.7.
package tokencount

import "github.com/tidwall/gjson"

// Count is what a request and its answer used, in tokens.
type Count struct {
	// Input was not read from a cache, nor written to one.
	Input         uint64
	Output        uint64
	CacheRead     uint64
	CacheCreation uint64
	// Estimated says that the service did not count all of it.
	Estimated bool
}

// Request estimates the tokens of a request's body, and finds the model that it is to. An image counts
// 1,600 at most. The zero value is nothing.
type Request struct{ scanner scanner }

// Write takes the next bytes. It never fails.
func (r *Request) Write(p []byte) (int, error) {
	r.scanner.write(p)
	return len(p), nil
}

// Err says, for the client, why services may read another model out of what was written so far than Model, or answer later
// than in the answer that is counted ("background"); nil if they may not. They read one JSON object in UTF-8, with at most one "model", and
// without escapes in the names at its top.
func (r *Request) Err() error { return r.scanner.err }

// Whole reports whether the object has ended. White space may follow.
func (r *Request) Whole() bool { return r.scanner.ended }

// Model is the member "model"; "" until it was written whole, or if it is no name that
// [protocol.CheckModelName] accepts for its length.
func (r *Request) Model() string {
	if r.scanner.inModel || len(r.scanner.model) > maxModel {
		return ""
	}
	return gjson.Parse(`"` + string(r.scanner.model) + `"`).String()
}

// Others reports whether there is a member "models", of models that may answer instead.
func (r *Request) Others() bool { return r.scanner.several }

// Asked reports whether the request certainly asks for the usage of a stream ("stream_options" with "include_usage"), as services want it that
// speak OpenAI's chat completions. It is final once the request is Whole.
func (r *Request) Asked() bool {
	s := &r.scanner
	return s.option == 1 && s.asks == 1 && s.counts
}

// Unasked reports whether the answer is to be a stream, and the request has not Asked for its usage. It is final once the request is Whole.
func (r *Request) Unasked() bool { return r.scanner.streams && !r.Asked() }

// Vague is the member "stream" or "background" whose value is none of true, false and null, which a service may take as true: `"stream":1`;
// "" if there is none.
func (r *Request) Vague() string { return r.scanner.vague }

// Tokens is the estimate of what was written so far.
func (r *Request) Tokens() uint64 { return r.scanner.tokens() }
