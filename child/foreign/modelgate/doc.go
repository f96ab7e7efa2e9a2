// Package modelgate lets a program of another make reach the models of one provider without a
// key: by HTTP at a loopback address, with a token that is good there and nowhere else.
//
//	gate, err := modelgate.New(modelgate.Options{Provider: "anthropic", Type: "anthropic", Protocol: "claude", Broker: transport})
//	rules.Service = gate // sandbox.Start listens, tells the program and serves it
//
// What the program asks goes on to the broker at the agent's model socket, which adds the key, counts
// the tokens and keeps the limits. The gate passes on what the provider's type speaks and refuses all else in
// words, without the token and other credentials of the program's. Answers stream. Whoever is on the machine can connect:
// connections without the token have bounds of their own, and displace none of the program's. A Gate is safe for
// concurrent use; Serve joins its goroutines. See SPEC.md §4.11.
package modelgate
