// Package client calls a nexus server.
//
//	c, err := client.FromEnvironment(os.Environ())
//	created, err := client.Do(ctx, c, "", api.CreateAgent, api.CreateAgentParams{})
//	for part, err := range c.SendStream(ctx, created.AgentID, api.SendParams{Content: "Hello!"}) {
//		if text, ok := part.(client.Text); ok {
//			fmt.Print(text)
//		}
//	}
//	for event, err := range c.Follow(ctx, created.AgentID, client.FromNow, client.Filter{}) { … }
//
// Do calls the method of a row of package api, with the types that the row has; Call calls
// any method by its name.
// An error that the server gave is an *RPCError; that no server answered, or that
// the connection broke, is a *ConnError. What may be repeated without harm is then
// tried again, with pauses that grow, also with a server that was started since and
// has another key. The key goes to
// loopback addresses only, never with a redirect, and on a connection only after
// the server has proved on it that it has the key: else the error is ErrUnproved.
//
// A Client is safe for concurrent use. Bounds: an answer and an event of at most
// 49 MiB each, which is room for 8 MiB of text however JSON escapes it; memory
// is taken as they come in. The contract is SPEC.md §6.
package client
