package methods

import (
	"context"
	"time"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
)

// connectPatience is how long an MCP server may take to start; a child gives up
// before.
const connectPatience = 60 * time.Second

func (m *mcpMethods) list(ctx context.Context, c *rpc.Call, _ api.None) (api.MCPListServersResult, error) {
	state, err := stateOf(ctx, m.agents, c)
	return api.MCPListServersResult{Servers: state.MCPServers}, err
}

func (m *mcpMethods) status(ctx context.Context, c *rpc.Call, p api.MCPServerParams) (api.MCPStatusResult, error) {
	state, err := stateOf(ctx, m.agents, c)
	if err != nil {
		return api.MCPStatusResult{}, err
	}
	for _, server := range state.MCPServers {
		if server.Name == p.Server {
			return api.MCPStatusResult{Server: server}, nil
		}
	}
	return api.MCPStatusResult{}, api.Invalid("server", "there is no such MCP server")
}

func (m *mcpMethods) connect(ctx context.Context, c *rpc.Call, p api.MCPConnectParams) (api.MCPConnectResult, error) {
	server, err := m.command(ctx, c, protocol.MCPConnect{Server: p.Server, Target: p.Target})
	return api.MCPConnectResult{Connected: true, Server: server}, err
}

func (m *mcpMethods) disconnect(ctx context.Context, c *rpc.Call, p api.MCPServerParams) (api.MCPDisconnectResult, error) {
	server, err := m.command(ctx, c, protocol.MCPDisconnect{Server: p.Server})
	return api.MCPDisconnectResult{Disconnected: true, Server: server}, err
}

// command does something to one MCP server and tells how it is then.
func (m *mcpMethods) command(ctx context.Context, c *rpc.Call, command protocol.Request[protocol.MCPAnswer]) (protocol.MCPServer, error) {
	a, err := m.agents.Resolve(ctx, c.Agent)
	if err != nil {
		return protocol.MCPServer{}, err
	}
	c.Incarnation = a.Info().Incarnation
	answer, err := agents.AskFor(ctx, m.agents, c, a, command, connectPatience)
	if err != nil {
		err = refusedChange(c, "server", command, err)
	}
	return answer.Server, err
}
