package agents

import "context"

// Gates are the gates of a registry.
type Gates struct{ gates }

func (g *Gates) Enter(ctx context.Context, id string, queues bool) (func(), error) {
	return g.enter(ctx, id, queues)
}
func (g *Gates) Hold(id string)                               { g.hold(id) }
func (g *Gates) ShutIdle(ctx context.Context, id string) bool { return g.shutIdle(ctx, id) }
func (g *Gates) Open(id string, holds bool)                   { g.open(id, holds) }

// Known is how many agents it knows of.
func (g *Gates) Known() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.of)
}
