package child

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nexus.internal/child/mcp"
	"nexus.internal/protocol"
)

const (
	maxServerCommands    = 16 // mcp_connect and mcp_disconnect that wait; a further one is refused
	serverCommandTimeout = 40 * time.Second
)

// serverCommand does something to one MCP server, which may take as long as its
// start, so it does not hold up the reader. The response tells how the server
// is then.
func (s *server) serverCommand(c protocol.Answered[protocol.MCPAnswer], name string, do func(context.Context) error) {
	var err error
	s.mu.Lock()
	switch {
	case s.closed:
		err = errShutdown
	case s.Servers == nil:
		err = fmt.Errorf("%w: %.64q", mcp.ErrUnknown, name)
	case s.serverCommands >= maxServerCommands:
		err = fmt.Errorf("%d are under way already", maxServerCommands)
	default:
		s.serverCommands++
		s.backgroundTasks.Add(1) // under the lock, so that nobody waits for side yet
	}
	s.mu.Unlock()
	if err != nil {
		s.refuse(c, fmt.Errorf("%s: %w", c.Name(), err))
		return
	}
	go func() {
		defer s.backgroundTasks.Done()
		ctx, cancel := context.WithTimeoutCause(s.ctx, serverCommandTimeout, errors.New("it takes too long"))
		defer cancel()
		err := do(ctx)
		s.mu.Lock()
		s.serverCommands--
		s.mu.Unlock()
		if err != nil {
			s.refuse(c, fmt.Errorf("%s: %w", c.Name(), err))
			return
		}
		all := s.Servers.Status()
		i := slices.IndexFunc(all, func(st protocol.MCPServer) bool { return st.Name == name })
		s.out.post(protocol.SuccessResponse(c, protocol.MCPAnswer{Server: all[i]}))
	}()
}
