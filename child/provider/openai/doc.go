// Package openai speaks the chat completions of OpenAI, and of everything that
// offers the same interface: OpenRouter, Azure, Ollama, vLLM, llama.cpp, LM
// Studio.
//
//	p, err := openai.New(openai.Options{Name: "openrouter", BaseURL: url, APIKey: key})
//	for delta, err := range p.Stream(ctx, request) { … }
//
// Answers are streamed. A try that fails before its first delta, in a way that
// may pass, is made again after a wait that heeds Retry-After; after the first
// delta nothing is tried again, since what was said cannot be taken back. The
// end of ctx ends a wait, a silent connection and a stream at once.
//
// The environment is not read, redirects are not followed, and the key appears
// in no error. A provider is safe for concurrent use; it starts no goroutine of
// its own but those of its HTTP client. The contract is SPEC.md §4.3.
package openai
