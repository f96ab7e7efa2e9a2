// Package playedmodel plays the services of models on loopback, for programs of other makes: chat
// completions and responses as OpenAI speaks them, messages as Anthropic does, and generateContent as
// Gemini does.
//
//	m, err := playedmodel.New()
//	defer m.Close()
//	env := m.Environment() // of the program
//
// What it answers follows from the last mark ([Short], [Long], [Recall], [Run]) in a request alone, so
// that it does not matter what a program writes around a prompt. Its methods are safe for concurrent
// use. It checks no key, and is no model for anything but tests and nexus probe.
package playedmodel
