package main

import (
	"context"
	"errors"
	"fmt"
)

// many are the figures of a server with many agents that do nothing.
func (b *bench) many(ctx context.Context) (rows []row, err error) {
	crowded, err := b.startServer(ctx, unsynced)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, crowded.stop()) }()
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
	got, err := inTurns(ctx, b.size.rounds, alone.shortTalks(ctx, b.size.talks), crowded.shortTalks(ctx, b.size.talks))
	if err != nil {
		return nil, err
	}
	live := fmt.Sprintf("%d live agents", b.size.agents)
	rows = append(rows, row{"send, short, " + live + ": p50", got[1], got[0], "send, short, one live agent", seconds, ratioAtMost(1.3)})
	scrape, err := crowded.scraping(ctx, b.size.rounds)
	if err != nil {
		return rows, err
	}
	rows = append(rows, row{"GET /metrics, " + live + ": p50", scrape[1], scrape[0], "/proc/PID/stat of each", seconds, atMost(20e-3)})
	if unknown != nil {
		return rows, unknown
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
