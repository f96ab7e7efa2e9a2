// Package scripted is the model that needs no network: either the offline
// model, a small set of fixed rules that nexus uses where nothing else is
// configured, or a player of scenario files, faults included, for tests.
//
//	offline, err := scripted.New(scripted.Options{})
//	for delta, err := range offline.Stream(ctx, request) { … }
//
// Both are deterministic: the same request gets the same answer, and nothing
// is remembered outside the request's messages. So an agent that was restarted
// with its conversation goes on where it was. What is kept of the latest
// conversation only saves reading it again. Neither pretends to be a language
// model, and neither opens a file or a connection: what the offline model is
// asked to read or write goes through the tools that the request offers.
//
// A provider of this package is safe for concurrent use and starts no
// goroutine, except for the scenario step that brings the process down. The
// rules are SPEC.md §4.1, the scenario files §4.2.
package scripted
