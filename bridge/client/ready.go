package client

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
)

// maxReady bounds what is read of GET /readyz, in bytes.
const maxReady = 1 << 20

// Ready asks the server whether it can work (SPEC §6.4). That it cannot is no
// error: Status and Reasons say it.
func (c *Client) Ready(ctx context.Context) (ready api.Readiness, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/readyz", http.NoBody)
	if err != nil {
		return ready, fmt.Errorf("call readyz: %w", err)
	}
	response, err := c.do(r, "readyz")
	if err != nil {
		return ready, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxReady))
	if err != nil {
		return ready, fmt.Errorf("call readyz: read the answer: %w", err)
	}
	if err := json.Unmarshal(body, &ready); err != nil || ready.Status == "" {
		return ready, decode("readyz", body, response.StatusCode, nil) // an error in JSON-RPC's shape, or no server of ours
	}
	return ready, nil
}
