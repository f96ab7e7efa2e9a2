package terminal

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/charmbracelet/x/ansi"

	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

const (
	// listedEvents is how many events /events lists, and maxListedEvents how many it may.
	listedEvents    = 20
	maxListedEvents = 1000
	// eventsPatience bounds the wait for them.
	eventsPatience = 10 * time.Second
)

// lastEvents lists the last events of the current agent.
func lastEvents(t *talk, args []string) ([]string, work) {
	most, err := uint64(listedEvents), error(nil)
	if len(args) > 0 {
		most, err = strconv.ParseUint(args[0], 10, 64)
	}
	if len(args) > 1 || err != nil || most < 1 || most > maxListedEvents {
		return []string{t.look().problem(fmt.Sprintf("usage: /events [N], N from 1 to %d", maxListedEvents))}, nil
	}
	if t.agent == "" {
		return []string{t.look().problem("no agent is talked to")}, nil
	}
	agent := t.agent
	return nil, func() any {
		lines, err := t.eventsOf(agent, most)
		if err != nil {
			lines = append(lines, t.look().problem(cli.Harmless(err.Error(), true)))
		}
		return said(lines)
	}
}

// eventsOf are the last events of an agent, one on a line.
func (t *talk) eventsOf(agent string, most uint64) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, eventsPatience)
	defer cancel()
	last, _, err := cli.LastEvent(ctx, t.c, agent)
	switch {
	case err != nil:
		return nil, err
	case last == 0:
		return []string{t.look().note("no event yet")}, nil
	}
	for event, err := range t.c.Events(ctx, agent, last-min(last, most), client.Filter{}) {
		if err != nil {
			return lines, err
		}
		line := fmt.Sprintf("%d %s %s", event.Seq, event.Type, event.Data)
		if line = cli.Harmless(line, true); !t.o.Plain && t.look().width > 0 {
			line = ansi.Truncate(line, t.look().width, "…")
		}
		if lines = append(lines, line); event.Seq >= last {
			break
		}
	}
	return lines, nil
}

// turnPatience bounds the search for the begin of a turn that runs: its event may be kept no more.
const turnPatience = 2 * time.Second

// position is where the events of an agent begin to be told. The zero one is now.
type position struct {
	turn  string // whose begin that is; "" for none
	after string // the id of the event before
	seen  uint64 // the number of the last event that is past
}

// turnOf is the begin of the turn that an agent is at, or else now.
func (c *chat) turnOf(agent string) (p position) {
	a := c.about(agent)
	if a.RequestID == nil {
		return p
	}
	ctx, cancel := context.WithTimeout(c.ctx, turnPatience)
	defer cancel()
	last, id, err := cli.LastEvent(ctx, c.c, agent)
	if err != nil {
		return p
	}
	for event, err := range c.c.Events(ctx, agent, 0, client.Filter{Types: []string{"turn_start"}}) {
		if err != nil {
			return p
		}
		if one, err := event.Decode(); err == nil {
			if start, ok := one.(protocol.TurnStart); ok && start.TurnID == *a.RequestID {
				return position{start.TurnID, fmt.Sprintf("%s%d", id, event.Seq-1), last}
			}
		}
	}
	return p
}
