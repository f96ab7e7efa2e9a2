// Package client calls a nexus server.
//
//	found, err := client.Detect(ctx, port)
//	if found.Detection != client.NexusServer { … }
//	c, err := client.New(client.Options{URL: found.URL, Key: key})
//	created, err := c.CreateAgent(ctx, api.CreateAgentParams{})
//	result, err := c.SendStream(ctx, id, params, func(chunk string) { fmt.Print(chunk) }, nil)
//	for event, err := range c.Events(ctx, id, client.FromNow) { … }
//
// An error that the server gave is an *RPCError; that no server answered is an
// error of package net wrapped with what was attempted. The key goes to
// loopback addresses only, never with a redirect, and on a connection only after
// the server has proved on it that it has the key: else the error is ErrUnproved.
//
// A Client is safe for concurrent use. Bounds: an answer and an event of at most
// 49 MiB each, which is room for 8 MiB of text however JSON escapes it; memory
// is taken as they come in. The contract is SPEC.md §6.
package client
