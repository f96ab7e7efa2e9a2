package top

import (
	"context"
	"sync"
	"time"

	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/terminal"
)

// Screen is the screen of a terminal with the agents of a server, which change as one looks. It
// keeps what it has seen from one Show to the next.
type Screen struct{ m *model }

// NewScreen has seen nothing yet.
func NewScreen(c *client.Client, o Options) *Screen {
	return &Screen{&model{c: c, by: columnOf(o.Sort), began: time.Now()}}
}

// Show draws until the person leaves, or goes to an agent, which is then returned; "" if not. The
// terminal is by then as it was before.
func (s *Screen) Show(ctx context.Context, o Options, environ []string) (attach string, err error) {
	following, stop := context.WithCancel(ctx)
	var events sync.WaitGroup
	defer events.Wait()
	defer stop()
	m := s.m
	m.ctx, m.attach, m.asking, m.soon, m.note = following, "", false, false, ""
	m.keyboard = terminal.NewKeyboard(o.Terminal)
	program := terminal.NewProgram(m, m.keyboard, o.App.Stdout, environ)
	events.Go(func() {
		changes := client.Filter{Types: []string{"agent_state", "turn_start", "turn_end", "permission_request", "permission_end"}}
		for _, err := range m.c.FollowAll(following, "", changes) {
			if err != nil {
				return // there are samples without it
			}
			program.Send(happened{})
		}
	})
	err = program.Show(ctx)
	return m.attach, err
}
