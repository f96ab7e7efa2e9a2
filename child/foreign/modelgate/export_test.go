package modelgate

import (
	"context"
	"net"
)

// What tests measure by.
const (
	MaxConnections     = maxConnections
	MaxUnauthenticated = maxUnauthenticated
	HeaderTimeout      = headerTimeout
	DropTime           = dropTime
)

// ServeListener is Serve of a listener that is not the system's.
func (g *Gate) ServeListener(ctx context.Context, ln net.Listener) { g.serve(ctx, ln) }
