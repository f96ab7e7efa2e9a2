// Package openai speaks the chat completions of OpenAI, and of everything that
// offers the same interface: OpenRouter, Azure, Ollama, vLLM, llama.cpp, LM
// Studio.
//
//	p, err := openai.New(openai.Options{Name: "openrouter", BaseURL: url, AuthMethod: httpapi.Bearer, APIKey: key})
//	for delta, err := range p.Stream(ctx, request) { … }
//
// Tries, waits, silence, errors and secrets are those of package httpapi. Images go
// out as data URLs; those of a tool's result follow it as a message of the user.
// Reasoning is read where a service sends it. An answer with reasoning_content or
// reasoning_details ends with a ThinkingSignature, by which its message, as long
// as it is as it was, gives them back to the model they came from.
//
// NewResponses speaks OpenAI's responses instead, in which the reasoning of a model goes back to it
// between calls, encrypted, and the service keeps nothing.
//
// A provider is safe for concurrent use; it starts no goroutine of its own but
// those of its HTTP client. The contract is SPEC.md §4.3.
package openai
