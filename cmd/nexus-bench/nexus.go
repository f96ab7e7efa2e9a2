package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// rateAgents is the number of agents, and of clients, of the rate figures.
const rateAgents = 16

// figures are what nexus does.
type figures struct {
	send     time.Duration // one-word turn, journal not synced, p50
	sendSync time.Duration // the same with the journal synced, p50
	sendMany time.Duration // as send, with options.agents live agents
	rate     float64       // sends a second, rateAgents agents, not synced
	frames   float64       // frames a second, child to one client of the event stream
	create   time.Duration // create_agent, p50
	childPSS int64         // bytes an idle child; 0 where the system does not say
	perAgent int64         // bytes the server grows by for each agent
}

func measureNexus(ctx context.Context, dir string, o options) (f figures, err error) {
	steps := []struct {
		name  string
		flags []string
		do    func(context.Context, *server, options, *figures) error
	}{
		{"sends, journal not synced", []string{"--durability", "os"}, measureSends},
		{"sends, journal synced", nil, measureSynced},
		{"event stream", []string{"--durability", "os"}, measureFrames},
		{"many agents", []string{"--durability", "os"}, measureMany},
	}
	for i, step := range steps {
		s, err := startServer(ctx, o.bin, filepath.Join(dir, "home"+strconv.Itoa(i)), step.flags...)
		if err != nil {
			return f, err
		}
		if err := errors.Join(step.do(ctx, s, o, &f), s.stop()); err != nil {
			return f, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return f, nil
}

// oneWord asks the offline model for an answer of one word.
const oneWord = "echo pong"

func measureSends(ctx context.Context, s *server, o options, f *figures) (err error) {
	for i := range rateAgents {
		if err := s.create(ctx, agentName(i)); err != nil {
			return err
		}
	}
	if f.send, err = p50(ctx, o.sends, func() error { return s.send(ctx, agentName(0), oneWord) }); err != nil {
		return err
	}
	f.rate, err = perSecond(ctx, rateAgents, 4*o.sends/rateAgents, func(worker int) error {
		return s.send(ctx, agentName(worker), oneWord)
	})
	return err
}

func measureSynced(ctx context.Context, s *server, o options, f *figures) (err error) {
	if err := s.create(ctx, agentName(0)); err != nil {
		return err
	}
	f.sendSync, err = p50(ctx, o.sends/3, func() error { return s.send(ctx, agentName(0), oneWord) })
	return err
}

// measureFrames counts the deltas of one long turn as a client of the event
// stream sees them.
func measureFrames(ctx context.Context, s *server, o options, f *figures) error {
	if err := s.create(ctx, agentName(0)); err != nil {
		return err
	}
	events, done, err := s.subscribe(ctx, agentName(0))
	if err != nil {
		return err
	}
	defer done()
	sent := make(chan error, 1)
	go func() { sent <- s.send(ctx, agentName(0), "flood "+strconv.Itoa(o.lines)) }()

	var began time.Time
	delta, end := []byte("event: message_update"), []byte("event: agent_end")
	for count := 0; ; {
		line, err := events.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("event stream after %d frames: %w", count, err)
		}
		switch {
		case bytes.HasPrefix(line, delta):
			if count++; count == 1 {
				began = time.Now()
			}
		case bytes.HasPrefix(line, end):
			f.frames = float64(count) / time.Since(began).Seconds()
			return <-sent
		}
	}
}

func measureMany(ctx context.Context, s *server, o options, f *figures) (err error) {
	before := pss(s.cmd.Process.Pid)
	n := 0
	if f.create, err = p50(ctx, o.agents, func() error {
		n++
		return s.create(ctx, agentName(n))
	}); err != nil {
		return err
	}
	pids, err := s.pids(ctx)
	if err != nil {
		return err
	}
	var total int64
	for _, pid := range pids {
		total += pss(pid)
	}
	if len(pids) > 0 {
		f.childPSS = total / int64(len(pids))
		f.perAgent = (pss(s.cmd.Process.Pid) - before) / int64(len(pids))
	}
	f.sendMany, err = p50(ctx, o.sends, func() error { return s.send(ctx, agentName(1), oneWord) })
	return err
}

func agentName(i int) string { return "bench-" + strconv.Itoa(i) }

// pss is the proportional set size of a process in bytes; 0 if unknown.
func pss(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
