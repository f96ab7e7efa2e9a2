package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	// briefTurn is the number of frames that a long turn is compared with.
	briefTurn = 10_000
	// block is how many lines one write has where a floor writes blocks.
	block = 500
)

// streams are the figures of a turn that one client reads as it happens.
func (b *bench) streams(ctx context.Context, s *server) ([]row, error) {
	lines, blocks := of(b.linesPerSecond(ctx, b.size.lines, 1)), of(b.linesPerSecond(ctx, b.size.lines*20, block))
	frames := of(func() (float64, error) { return s.frameRate(ctx, b.size.lines) })
	brief := of(func() (_ float64, err error) { // one alone is over too soon to be measured well
		rates := make([]float64, 5)
		for i := range rates {
			if rates[i], err = s.frameRate(ctx, briefTurn); err != nil {
				return 0, err
			}
		}
		return median(rates), nil
	})
	return measure(ctx, max(b.size.rounds/2, 3),
		figure{"frames a second to an event stream", frames, lines, "lines a second", perSec, ratioAtLeast(0.08), p50th},
		figure{"the same", frames, blocks, fmt.Sprintf("lines a second, %d in a write", block), perSec, bound{}, p50th},
		figure{
			"the same, " + strconv.Itoa(b.size.lines) + " frames in a turn", frames, brief, strconv.Itoa(briefTurn) + " frames in a turn", perSec,
			ratioAtLeast(0.8), p50th,
		},
	)
}

// frameRate counts the deltas of one turn of n frames as a client of the
// agent's event stream sees them.
func (s *server) frameRate(ctx context.Context, n int) (float64, error) {
	id := s.newID()
	return s.watched(ctx, id, func(events *bufio.Reader) (float64, error) {
		sent := make(chan error, 1)
		go func() { sent <- s.send(ctx, id, "flood "+strconv.Itoa(n)) }()
		rate, err := deltasPerSecond(events, n)
		return rate, errors.Join(err, <-sent)
	})
}

// deltasPerSecond reads the events of a turn that must have n deltas.
func deltasPerSecond(events *bufio.Reader, n int) (float64, error) {
	var began time.Time
	delta, end := []byte("event: message_update"), []byte("event: agent_end")
	for count := 0; ; {
		line, err := events.ReadSlice('\n')
		if err != nil {
			return 0, fmt.Errorf("event stream after %d frames: %w", count, err)
		}
		switch {
		case bytes.HasPrefix(line, delta):
			if count++; count == 1 {
				began = time.Now()
			}
		case bytes.HasPrefix(line, end):
			if count < n {
				return 0, fmt.Errorf("event stream had %d frames, want %d", count, n)
			}
			return float64(count) / time.Since(began).Seconds(), nil
		}
	}
}
