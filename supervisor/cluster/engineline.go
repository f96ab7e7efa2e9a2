package cluster

import (
	"context"
	"net"

	"nexus.internal/protocol/safefile"
)

// EngineOptions are the first line that nexus-cluster reads, in JSON: which machine it serves, of which cluster.
type EngineOptions struct {
	Cluster string `json:"cluster"`
	Machine string `json:"machine"`
	// Listen is where the other machines reach this one, HOST:PORT.
	Listen string `json:"listen"`
	// Join are the addresses of all machines, this one's, too.
	Join []string `json:"join"`
	// Dir is where what the machines agree on is kept.
	Dir string `json:"dir"`
	// Socket is the path of the unix socket at which it takes clients.
	Socket string `json:"socket"`
	// Certificates is a directory as nexus cluster init makes it. Only a machine on loopback may do without.
	Certificates *string `json:"certificates,omitzero"`
}

// EngineReady is the only line that nexus-cluster writes, in JSON: where it takes clients, and the token that they send.
type EngineReady struct {
	// Socket is the path of a unix socket.
	Socket string `json:"socket"`
	Token  string `json:"token"`
}

// Dial connects to the engine, which greets whoever does.
func (r EngineReady) Dial(ctx context.Context) (c net.Conn, err error) {
	err = safefile.SocketPath(r.Socket, func(short string) error {
		c, err = new(net.Dialer).DialContext(ctx, "unix", short)
		return err
	})
	return c, err
}
