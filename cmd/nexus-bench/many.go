package main

import (
	"context"
	"errors"
	"fmt"
)

// many are the figures of a server with many agents that do nothing.
func (b *bench) many(ctx context.Context, crowded *server) (rows []row, err error) {
	alone, err := b.startServer(ctx, unsynced)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, alone.stop()) }()

	before, unknown := pss(crowded.cmd.Process.Pid)
	for range b.size.agents {
		if err := crowded.create(ctx, crowded.newID()); err != nil {
			return nil, err
		}
	}
	live := fmt.Sprintf("%d live agents", b.size.agents)
	rows, err = measure(ctx, b.size.rounds, figure{
		"send, short, " + live + ": p50", of(crowded.shortTalks(ctx, b.size.talks)), of(alone.shortTalks(ctx, b.size.talks)),
		"send, short, one live agent", seconds, ratioAtMost(1.3), p50th,
	})
	if err != nil {
		return nil, err
	}
	scrapes, err := crowded.scraping(ctx, b.size.rounds, "GET /metrics, "+live+": p50")
	rows = append(rows, scrapes...)
	if err := errors.Join(err, unknown); err != nil {
		return rows, err
	}
	child, server, err := crowded.memory(ctx)
	if err != nil {
		return rows, err
	}
	return append(rows,
		row{"idle child, memory", child, 0, live, size, atMost(3 << 20)},
		row{"server for each agent, memory", (server - float64(before)) / float64(b.size.agents), 0, live, size, atMost(100 << 10)},
	), nil
}

// memory is the mean of the children, and the server, in bytes.
func (s *server) memory(ctx context.Context) (child, server float64, err error) {
	pids, err := s.pids(ctx)
	if err != nil {
		return 0, 0, err
	}
	var total int64
	for _, pid := range pids {
		one, err := pss(pid)
		if err != nil {
			return 0, 0, err
		}
		total += one
	}
	itself, err := pss(s.cmd.Process.Pid)
	return float64(total) / float64(max(len(pids), 1)), float64(itself), err
}
