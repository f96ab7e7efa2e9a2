// Package top shows what the agents of a server take: processor, memory, tokens, cost.
//
//	err := top.Once(ctx, client, top.Options{Sort: "memory", App: app})
//
// A Screen shows them live, with curves of what was seen since it began.
//
// All of it is what list_agents says; an agent is only asked for something if a person does that.
// What others wrote, such as the names of agents and models, never acts on the terminal
// ([cli.Harmless]). One goroutine at a time may use a Screen. The contract is the page OPERATIONS.md, "nexus top".
package top
