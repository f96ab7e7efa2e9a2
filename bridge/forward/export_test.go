package forward

import (
	"io"

	"nexus.internal/bridge/rpc"
)

// Relay passes on an answer as it goes, and returns the response.
func Relay(from io.ReadCloser, out *rpc.Stream) ([]byte, error) {
	return relay(&blocks{from: from, body: from}, out)
}
