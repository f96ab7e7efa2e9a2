package client

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/auth"
	"nexus.internal/protocol/jsonrpc"
)

// signature is the member auth of a request to path (SPEC §6.5).
func (c *Client) signature(path string, r jsonrpc.Request) jsontext.Value {
	now := time.Now()
	at := fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond())
	return jsontext.Value(`{"timestamp":` + at + `,"signature":"` + c.keys.now().key.Sign(auth.RequestText(at, path, r)) + `"}`)
}

// mustSign reports whether the server refused a request because it was not
// signed. Then those to come are; the refused one may be sent again, because
// nothing of it was done. The response is closed then.
func (c *Client) mustSign(response *http.Response) bool {
	if response.StatusCode != http.StatusUnauthorized || c.keys.now().key.IsZero() {
		return false
	}
	c.signs.Store(true)
	_ = response.Body.Close()
	return true
}
