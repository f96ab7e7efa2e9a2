package bridge

import (
	"context"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
)

// connectPatience is how long an MCP server may take to start; a child gives up
// before.
const connectPatience = 60 * time.Second

// mcpServer is an MCP server as a child tells of it.
type mcpServer struct {
	Name      string `json:"name"`
	Transport string `json:"transport"`
	State     string `json:"state"`
	Tools     uint64 `json:"tools"`
	Error     string `json:"error" wire:"default"`
	Note      string `json:"note" wire:"default"`
	Project   bool   `json:"project" wire:"default"`
	Target    string `json:"target" wire:"default"`
}

func (s *Server) mcpServers(ctx context.Context, c *call) ([]api.MCPServer, error) {
	state, err := s.state(ctx, c)
	if err != nil {
		return nil, err
	}
	servers := []api.MCPServer{}
	for _, raw := range state.Get("mcp_servers").Array() {
		var server mcpServer
		if err := strict.Fill([]byte(raw.Raw), &server, strict.IgnoreUnknown); err != nil {
			return nil, &supervisor.ChildError{Command: "get_state", Message: "the child's answer cannot be read: " + err.Error()}
		}
		servers = append(servers, api.MCPServer(server))
	}
	return servers, nil
}

func (s *Server) mcpListServers(ctx context.Context, c *call, _ api.None) (any, error) {
	servers, err := s.mcpServers(ctx, c)
	return api.MCPListServersResult{Servers: servers}, err
}

func (s *Server) mcpStatus(ctx context.Context, c *call, p api.MCPServerParams) (any, error) {
	servers, err := s.mcpServers(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, server := range servers {
		if server.Name == p.Server {
			return api.MCPStatusResult{Server: server}, nil
		}
	}
	return nil, api.Invalid("server", "there is no such MCP server")
}

func (s *Server) mcpConnect(ctx context.Context, c *call, p api.MCPConnectParams) (any, error) {
	if err := c.mayGrant("start an MCP server"); err != nil {
		return nil, err
	}
	server, err := s.mcpCommand(ctx, c, protocol.MCPConnect{Server: p.Server, Target: p.Target})
	return api.MCPConnectResult{Connected: true, Server: server}, err
}

func (s *Server) mcpDisconnect(ctx context.Context, c *call, p api.MCPServerParams) (any, error) {
	server, err := s.mcpCommand(ctx, c, protocol.MCPDisconnect{Server: p.Server})
	return api.MCPDisconnectResult{Disconnected: true, Server: server}, err
}

// mcpCommand does something to one MCP server and tells how it is then.
func (s *Server) mcpCommand(ctx context.Context, c *call, command protocol.Command) (api.MCPServer, error) {
	a, err := s.agent(ctx, c.id)
	if err != nil {
		return api.MCPServer{}, err
	}
	c.incarnation = a.Info().Incarnation
	body, err := s.askFor(ctx, a, command, connectPatience)
	if err != nil {
		return api.MCPServer{}, refusedChange(c, "server", command, err)
	}
	told, err := read[struct {
		Server mcpServer `json:"server"`
	}](body, command.Name())
	return api.MCPServer(told.Server), err
}
