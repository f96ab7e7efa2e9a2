package mcpserve

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// heard keeps what a client is told. One goroutine at a time tells it.
type heard []string

func (h *heard) NotifyProgress(_ context.Context, p *mcp.ProgressNotificationParams) error {
	*h = append(*h, fmt.Sprintf("%v %v %s", p.ProgressToken, p.Progress, p.Message))
	return nil
}

// A call that goes on is told of with each beat, by numbers that grow; one whose client asked for
// nothing is not.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told heard
		p := &progress{ctx: t.Context(), client: &told, token: "t", end: make(chan struct{})}
		silent := &progress{ctx: t.Context(), client: &told, end: make(chan struct{})}
		p.start()
		silent.start()
		p.say("begun by %s", "a")
		silent.say("never")
		p.set("1 byte")
		p.set("2 bytes")
		<-time.After(2*beat + beat/2)
		p.stop()
		silent.stop()
		<-time.After(2 * beat)
		if want := []string{"t 1 begun by a", "t 2 2 bytes", "t 3 2 bytes"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
