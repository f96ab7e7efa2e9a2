package cli

import (
	"context"
	"sync"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// tellWaiting says on stderr which calls of an agent wait for an approval, as soon as
// they do, and how to answer. What it cannot learn it does not tell: a send has an
// answer or an error of its own. The caller must call stop.
func tellWaiting(ctx context.Context, a *App, c *client.Client, agent string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		told := map[string]bool{} // by request id
		tell := func(request protocol.PermissionRequest) {
			if request.RequestID == "" || told[request.RequestID] {
				return
			}
			told[request.RequestID] = true
			noteRequest(a, asked{agent, request})
		}
		only := client.Filter{Types: []string{"permission_request"}, Agents: []string{agent}}
		for event, err := range c.FollowAll(ctx, "", only) {
			switch {
			case err != nil:
				return
			case event.Type == "open": // from here on events come; what waits already has none to come
				if now, err := client.Do(ctx, c, agent, api.GetPermissions, api.None{}); err == nil {
					for _, request := range now.Pending {
						tell(request)
					}
				}
			case event.Type == "permission_request":
				if one, err := event.Decode(); err == nil {
					if request, ok := one.(protocol.PermissionRequest); ok {
						tell(request)
					}
				}
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

// noteRequest tells of a call that waits, and how to answer it.
func noteRequest(a *App, one asked) {
	rpc := a.self()
	a.note("%s waits for an approval:\n  %s  answer with: %s allow %s, or %s deny %s", one.AgentID, one.describe(), rpc, one.RequestID, rpc, one.RequestID)
}
