package forward_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/forward"
	"nexus.internal/bridge/rpc"
)

// at are the machines of a cluster of which one is reached, at an address.
type at struct {
	forward.Machines // answers nothing else
	address          string
}

func (at) Self() string { return "a" }

func (m at) Dial(ctx context.Context, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", m.address)
}

// A machine of an earlier version knows no records of others: the call says that it is to be upgraded, and not that there is no such path.
func TestRunOfAnEarlierMachine(t *testing.T) {
	earlier := httptest.NewServer(http.NotFoundHandler())
	defer earlier.Close()
	f := forward.NewClient(at{address: earlier.Listener.Addr().String()})
	defer f.Close()
	err := f.GiveRun(t.Context(), "b", "run", strings.NewReader("x"))
	told := rpc.ToError(err).Err.Data
	if told.Type != string(api.KindNodeUnreachable) || !strings.Contains(told.Details, "upgrade it") || !strings.Contains(told.Details, "the machine b, which has the agents,") {
		t.Errorf("the record of a run: %v", told)
	}
	if digest, err := f.RunDigest(t.Context(), "b", "run"); digest != "" || err == nil || !strings.Contains(err.Error(), "upgrade it") {
		t.Errorf("which run it has: %q, %v", digest, err)
	}
}
