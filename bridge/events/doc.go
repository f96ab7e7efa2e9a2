// Package events streams what agents do to clients: the events of one agent, or of all of
// them, with a replay of what is kept (SPEC §6.4). It knows no HTTP but the query and the
// header by which a client says from where on: it writes to an [rpc.Writer]
// once it knows that the request is good.
//
//	streams := events.New(events.Options{Supervisor: sup, Agents: registry, Heartbeat: 15 * time.Second})
//	refused, ended := streams.Serve(ctx, events.Request{By: principal, Agent: "worker-1"}, open)
//
// A stream ends with ctx, with the key of its principal, with its agent, or because the
// client reads too slowly; its last event says why. An event is passed on byte for byte as
// the agent wrote it.
//
// The number of streams is bounded, for each key and in all. A Streams is safe for
// concurrent use; Serve joins the goroutines that it starts.
package events
