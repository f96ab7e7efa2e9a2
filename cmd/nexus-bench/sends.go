package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// rateAgents is the number of agents, and of clients, of the rate figures.
	rateAgents = 16
	// shortTalk is how many sends one agent is asked before another takes over.
	shortTalk = 25
	// oneWord asks the offline model for an answer of one word.
	oneWord = "echo pong"
	// rateSends is how many sends each of rateAgents is asked in one round.
	rateSends = 50
	// unsynced makes a server leave it to the system when journals are written.
	unsynced = "--durability=os"
)

// sends are the figures of a one-word turn.
func (b *bench) sends(ctx context.Context, synced *server) (_ []row, err error) {
	http, err := b.startHTTPEcho(ctx)
	if err != nil {
		return nil, err
	}
	defer http.close()
	plain, err := b.startServer(ctx, unsynced)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.stop()) }()
	file, err := os.OpenFile(filepath.Join(b.dir, "append"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	echo := of(func() (float64, error) {
		return p50(ctx, b.size.requests, func() error { return http.post(ctx, 0) })
	})
	echoRate := of(func() (float64, error) {
		return perSecond(ctx, rateAgents, b.size.requests, func(i int) error { return http.post(ctx, i) })
	})
	sync := of(fdatasyncs(ctx, file, b.size.requests/4, func() error { return http.post(ctx, 0) }))
	send, sendSynced, sendRate := of(plain.shortTalks(ctx, b.size.talks)), of(synced.shortTalks(ctx, b.size.talks)), of(plain.sendRate(ctx))
	if err := inTurns(ctx, b.size.rounds, echo, send, sync, sendSynced, echoRate, sendRate); err != nil {
		return nil, err
	}
	return []row{
		{"send, short, not synced: p50", send.median(), echo.median(), "http echo", seconds, ratioAtMost(2.5)},
		{"send, short, synced: p50", sendSynced.median(), 2.5*echo.median() + 1.5*sync.median(), "2.5 × http echo + 1.5 × fdatasync", seconds, ratioAtMost(1)},
		{"what the sync adds", sendSynced.median() - send.median(), sync.median(), "fdatasync", seconds, bound{}},
		{fmt.Sprintf("sends a second, %d agents and clients", rateAgents), sendRate.median(), echoRate.median(), "http echoes a second", perSec, ratioAtLeast(0.5)},
	}, nil
}

// shortTalks is the median send of some conversations, each with an agent of
// its own that is there for no longer.
func (s *server) shortTalks(ctx context.Context, talks int) step {
	return func() (float64, error) {
		var all []float64
		for range talks {
			id := s.newID()
			if _, err := s.withAgent(ctx, id, func() (float64, error) {
				taken, err := times(ctx, shortTalk, func() error { return s.send(ctx, id, oneWord) })
				all = append(all, taken...)
				return 0, err
			}); err != nil {
				return 0, err
			}
		}
		return median(all), nil
	}
}

// sendRate is sends a second to rateAgents new agents by as many clients.
func (s *server) sendRate(ctx context.Context) step {
	return func() (rate float64, err error) {
		ids := make([]string, rateAgents)
		for i := range ids {
			ids[i] = s.newID()
			if err := s.create(ctx, ids[i]); err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, s.destroy(ctx, ids[i])) }()
		}
		return perSecond(ctx, rateAgents, rateSends, func(i int) error { return s.send(ctx, ids[i], oneWord) })
	}
}
