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
	"nexus.internal/protocol/ratelimit"
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

// detectTimeout bounds each of the two questions of Detect.
const detectTimeout = 3 * time.Second

// Finding is what Detect found.
type Finding struct {
	Detection Detection
	// URL is the server's base if it is one of ours, for Options.
	URL string
	// Health is the server's own word if it is one of ours.
	Health api.Health
}

// Detect asks what listens on 127.0.0.1:port, and if that is not one of ours, on
// [::1]:port; without a key, for at most 3 s each. A server of ours on either is
// the answer, otherwise what is on 127.0.0.1, where a server listens unless told
// otherwise. The error is that of ctx.
func Detect(ctx context.Context, port int) (Finding, error) {
	var first Detection
	for i, host := range []string{"127.0.0.1", "::1"} {
		base := "http://" + net.JoinHostPort(host, strconv.Itoa(port))
		found, health, err := detectAgain(ctx, base)
		if err != nil {
			return Finding{}, err
		}
		if found == NexusServer {
			return Finding{found, base, health}, nil
		}
		if i == 0 {
			first = found
		}
	}
	return Finding{Detection: first}, nil
}

// detectAgain asks a few times more where a connection ends without an answer: that of a server
// which has just died is reset.
func detectAgain(ctx context.Context, base string) (found Detection, health api.Health, err error) {
	for range 4 {
		found, health, err = detect(ctx, base)
		if err != nil || found != silent {
			return found, health, err
		}
		if err := ratelimit.Sleep(ctx, 50*time.Millisecond); err != nil {
			return NoServer, health, err
		}
	}
	if found, health, err = detect(ctx, base); found == silent {
		found = OtherService
	}
	return found, health, err
}

// silent is a Detection of detect alone: the connection ended without an answer.
const silent Detection = -1

func detect(ctx context.Context, base string) (found Detection, health api.Health, err error) {
	limited, cancel := context.WithTimeout(ctx, detectTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, http.MethodGet, base+"/healthz", http.NoBody)
	if err != nil {
		return NoServer, health, err
	}
	t := transport()
	t.DisableKeepAlives = true
	response, err := t.RoundTrip(r)
	if err == nil {
		defer response.Body.Close()
		var body []byte
		if body, err = io.ReadAll(io.LimitReader(response.Body, maxHealth)); err == nil {
			if health, ours := readHealth(body); ours {
				return NexusServer, health, nil
			}
			return OtherService, health, nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return NoServer, health, ctx.Err()
	case errors.Is(err, syscall.ECONNREFUSED):
		return NoServer, health, nil
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout, health, nil
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		return silent, health, nil
	default:
		// It took the connection and did not answer in HTTP.
		return OtherService, health, nil
	}
}

func readHealth(body []byte) (health api.Health, ours bool) {
	if json.Unmarshal(body, &health) != nil || health.Service != api.Service {
		return api.Health{}, false
	}
	return health, true
}
