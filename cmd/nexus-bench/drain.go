package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// drainClients send to the agents of a machine while it drains.
const drainClients = 4

// drains are the figures of a machine whose agents are handed over while clients go on to send to them: a request that fails is an error.
func drains(ctx context.Context, b *bench) (rows []row, err error) {
	farm, err := b.startFarm(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.close()) }()
	asked, from := farm.machines[0], farm.machines[1]
	ids := make([]string, b.size.drained)
	began := time.Now()
	for i := range ids {
		ids[i] = fmt.Sprintf("drained-%d", i)
		if err := farm.create(ctx, from, ids[i]); err != nil {
			return nil, err
		}
		if err := until(ctx, func() error { return asked.send(ctx, ids[i], oneWord) }); err != nil { // once it knows of it
			return nil, err
		}
	}
	made := time.Since(began).Seconds()

	sending, stop := context.WithCancel(ctx)
	longest, failed := make([]float64, drainClients), make([]error, drainClients)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for c := range drainClients {
		clients.Go(func() {
			for i := c; failed[c] == nil && sending.Err() == nil; i += drainClients {
				began := time.Now()
				failed[c] = asked.send(ctx, ids[i%len(ids)], oneWord)
				longest[c] = max(longest[c], time.Since(began).Seconds())
			}
		})
	}
	began = time.Now()
	err = drain(ctx, asked, "b", len(ids))
	took := time.Since(began).Seconds()
	stop()
	clients.Wait()
	if err := errors.Join(append(failed, err)...); err != nil {
		return nil, err
	}
	return []row{
		{fmt.Sprintf("drain of a machine with %d agents, to which %d clients send", len(ids), drainClients), took, made, "as many made, and asked once", seconds, bound{}},
		{"the longest send meanwhile", slices.Max(longest), 0, "", seconds, bound{}},
	}, nil
}

// drain has a machine hand over its agents, which are so many.
func drain(ctx context.Context, asked *server, machine string, agents int) error {
	var far struct {
		HandedOver int `json:"handed_over"`
		Left       int `json:"left"`
		Bound      int `json:"bound"`
	}
	for far.HandedOver < agents {
		if err := asked.call(ctx, "/", "drain_node", fmt.Sprintf(`{"node":%q,"wait_s":60}`, machine), &far); err != nil {
			return err
		}
		if far.Bound > 0 || far.Left == 0 && far.HandedOver < agents {
			return fmt.Errorf("of %d agents, %d are handed over, and %d stay", agents, far.HandedOver, far.Bound)
		}
	}
	return nil
}
