// Package anthropic speaks Anthropic's messages.
//
//	p, err := anthropic.New(anthropic.Options{Options: httpapi.Options{APIKey: key}, Thinking: anthropic.ThinkingAdaptive})
//	for delta, err := range p.Stream(ctx, request) { … }
//
// Tries, waits, silence, errors and secrets are those of package httpapi. The
// tools, the system prompt and the last messages are marked for the prompt
// cache. An answer with reasoning ends with a ThinkingSignature, which says how
// the answer was made up and holds what the service signed; in a message that
// still is as it was, the reasoning goes back with it, and else it is left out.
//
// A provider is safe for concurrent use; it starts no goroutine of its own but
// those of its HTTP client. The environment is not read. The contract is SPEC.md
// §4.3.
package anthropic
