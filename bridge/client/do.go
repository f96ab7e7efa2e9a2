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
	path := RootPath
	if method.Scope == api.Agent || method.Scope == api.Both && agent != "" {
		path = AgentPath(agent)
	}
	err = c.Call(ctx, path, method.Name, params, &result)
	return result, err
}
