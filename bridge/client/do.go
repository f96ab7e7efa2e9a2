package client

import (
	"context"

	"nexus.internal/bridge/api"
)

// Do calls the method of a row, at the agent of that name; agent is "" for a method
// that is called globally. It tries again as Call does.
//
//	created, err := client.Do(ctx, c, "", api.CreateAgent, api.CreateAgentParams{})
//	tokens, err := client.Do(ctx, c, created.AgentID, api.GetTokens, api.None{})
func Do[P, R any](ctx context.Context, c *Client, agent string, method api.Def[P, R], params P) (result R, err error) {
	err = c.Call(ctx, pathOf(method.Scope, agent), method.Name, params, &result)
	return result, err
}

// pathOf is where a method is called, of the agent or without one.
func pathOf(scope api.Scope, agent string) string {
	if scope == api.Global || scope == api.Both && agent == "" {
		return RootPath
	}
	return AgentPath(agent)
}
