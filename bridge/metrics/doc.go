// Package metrics gives what a server counts to a Prometheus (SPEC §6.10).
//
//	m := metrics.New(metrics.Options{Supervisor: sup})
//	m.Call("client", "send", 0, took) // for each call
//	m.ServeHTTP(w, r)                 // for each scrape
//
// A Metrics is safe for concurrent use. What it counts itself costs less than a
// microsecond a call; everything else is read when somebody scrapes, some
// microseconds for each agent. The values of every label come from a fixed set or
// are bounded in number, whatever clients ask for; none holds what a client, an
// agent or a model said, but for the ids of at most TopAgents agents.
package metrics
