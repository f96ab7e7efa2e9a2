// Package broker holds the credentials, so that no agent has to: each running
// agent reaches its model through a unix socket of its own, by plain HTTP, and
// the broker adds the key, speaks TLS, counts the tokens and keeps the limits.
//
//	b, err := broker.New(broker.Options{Providers: providers, Dirs: dirs, Accounts: store, Log: log})
//	launchers := map[string]supervisor.Launcher{"": b.Launcher(&stdio.Launcher{CommandLine: child, Log: log})}
//	limits, err := b.Register(broker.Agent{ID: "worker-1"})
//	group.Add(func() error { return b.Run(ctx) }, func(error) { cancel() })
//	used, ok := b.Usage("worker-1")
//
// A child asks for http://broker/PROVIDER/REST, where REST is what it would
// append to the provider's base_url. The socket is there from before a child
// starts until its process is gone, and is answered only to that process: not
// to another user, nor to what the agent's tools start. What an agent used
// belongs to the agent, not to its process, and survives the server where
// Options.Accounts keeps it.
//
// The broker refuses whatever is not a model's endpoint below base_url, follows
// no redirect, and lets through neither a credential of the child's nor a
// secret of its own: the key is taken out of all that comes back, and its parts
// and what a service masks of it out of errors, within an answer too. It does
// not look for a key in what several events say together.
//
// All functions are safe for concurrent use. Each socket has one goroutine that
// accepts and one for each connection; closing it joins them. The contract is
// SPEC.md §5.7.
package broker
