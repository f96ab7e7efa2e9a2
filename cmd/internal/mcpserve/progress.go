package mcpserve

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// beat is how often a call that goes on says so: clients give up calls of which they hear
// nothing, the first after a minute.
const beat = 5 * time.Second

// progress tells the client of one call that it goes on, where the client wants to know. It is
// safe for concurrent use.
type progress struct {
	ctx    context.Context
	client notified
	token  any // nil where the client wants to hear nothing
	end    chan struct{}
	beats  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	count float64    // notifications
	text  string     // what the next beat says
}

// notified is who is told: an [mcp.ServerSession].
type notified interface {
	NotifyProgress(ctx context.Context, p *mcp.ProgressNotificationParams) error
}

// startProgress tells the client of r each beat that its call goes on. The caller must stop it
// before the call ends.
func startProgress(ctx context.Context, r *mcp.CallToolRequest) *progress {
	p := &progress{ctx: ctx, client: r.Session, token: r.Params.GetProgressToken(), end: make(chan struct{})}
	p.start()
	return p
}

func (p *progress) start() {
	if p.token == nil {
		return
	}
	p.beats.Go(func() {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.tell()
			case <-p.end:
				return
			}
		}
	})
}

// say tells it at once.
func (p *progress) say(format string, args ...any) {
	p.set(format, args...)
	p.tell()
}

// set is what the next beat says.
func (p *progress) set(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = fmt.Sprintf(format, args...)
}

// tell sends a notification. What cannot be sent is lost: then nobody reads the result either.
func (p *progress) tell() {
	p.mu.Lock()
	defer p.mu.Unlock() // while it is sent, so that the counts arrive in order
	if p.token == nil {
		return
	}
	p.count++
	_ = p.client.NotifyProgress(p.ctx, &mcp.ProgressNotificationParams{ProgressToken: p.token, Progress: p.count, Message: p.text})
}

func (p *progress) stop() {
	close(p.end)
	p.beats.Wait()
}
