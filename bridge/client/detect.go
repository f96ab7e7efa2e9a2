package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
)

// Detection says what listens on a port.
type Detection int

const (
	NoServer     Detection = iota // nobody listens
	NexusServer                   // one of ours, also one that is shutting down
	OtherService                  // something that is not ours
	Timeout                       // something that does not answer in time
)

func (d Detection) String() string {
	return [...]string{"no server", "nexus server", "other service", "timeout"}[d]
}

// detectTimeout bounds Detect.
const detectTimeout = 3 * time.Second

// Detect asks what listens on 127.0.0.1:port, without a key, for at most 3 s.
// health is the server's own word if it is one of ours. The error is set for
// what is neither of the answers above: that of ctx, or of the network.
func Detect(ctx context.Context, port int) (found Detection, health api.Health, err error) {
	limited, cancel := context.WithTimeout(ctx, detectTimeout)
	defer cancel()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	r, err := http.NewRequestWithContext(limited, http.MethodGet, "http://"+address+"/healthz", http.NoBody)
	if err != nil {
		return NoServer, health, err
	}
	t := transport()
	t.DisableKeepAlives = true
	response, err := t.RoundTrip(r)
	if err == nil {
		defer response.Body.Close()
		var body []byte
		if body, err = io.ReadAll(io.LimitReader(response.Body, 4<<10)); err == nil {
			if json.Unmarshal(body, &health) == nil && health.Service == api.Service {
				return NexusServer, health, nil
			}
			return OtherService, api.Health{}, nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return NoServer, health, ctx.Err()
	case errors.Is(err, syscall.ECONNREFUSED):
		return NoServer, health, nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout, health, nil
	default:
		// It took the connection and did not answer in HTTP.
		return OtherService, health, nil
	}
}
