package terminal

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
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
	last := uint64(0)
	for event, err := range t.c.FollowAll(ctx, "", client.Filter{Agents: []string{agent}}) {
		if err != nil {
			return nil, err
		}
		// The first event is at the end of what there is: NAME:NUMBER.
		last, err = strconv.ParseUint(event.ID[strings.LastIndex(event.ID, ":")+1:], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the position %q of the events: %w", event.ID, err)
		}
		break
	}
	if last == 0 {
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
