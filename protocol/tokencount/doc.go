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
type Request struct {
	scanner scanner
	object  object
}

// Write takes the next bytes. It never fails.
func (r *Request) Write(p []byte) (int, error) {
	r.scanner.write(p)
	r.object.write(p)
	return len(p), nil
}

// Err says why what was written so far begins no request that every service reads as it is read here, in words for
// the client; nil if it does. A request is one JSON object (RFC 8259), at most 1,000 deep, in which
// names at the top have no escapes, and "model" is there once at most, in no other case of its letters.
func (r *Request) Err() error { return r.object.err }

// Whole reports whether the object has ended. Err is nil then; white space may follow.
func (r *Request) Whole() bool { return r.object.whole() }

// Model is the member "model"; "" until it was written whole, or if it is no name that
// [protocol.CheckModelName] accepts for its length.
func (r *Request) Model() string { return r.object.modelName() }

// Others reports whether there is a member "models", which names others that may answer.
func (r *Request) Others() bool { return r.object.several }

// Tokens is the estimate of what was written so far.
func (r *Request) Tokens() uint64 { return r.scanner.tokens() }
