package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// boundAgents is the number of live agents at which their memory has a bound.
const boundAgents = 1000

// point is a figure, and its floor, where something has some size.
type point struct{ x, y, floor float64 }

// curve is a figure that is measured for several sizes.
type curve struct {
	chart, name string
	of          string // what x counts
	unit        unit
	floorIs     string
	growth      float64           // bound of the exponent of y in x; 0 for none
	bounds      map[float64]bound // of some points
	points      []point
}

func (c *curve) add(x, y, floor float64) { c.points = append(c.points, point{x, y, floor}) }

// exponent is the slope of the line through the logarithms of the points, by least squares:
// 0 for a figure that does not grow, 1 for one that is proportional.
func (c *curve) exponent() float64 {
	var x, y, xx, xy, n float64
	for _, p := range c.points {
		if p.x > 0 && p.y > 0 {
			lx, ly := math.Log(p.x), math.Log(p.y)
			x, y, xx, xy, n = x+lx, y+ly, xx+lx*lx, xy+lx*ly, n+1
		}
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

func (c *curve) rows() (rows []row) {
	for _, p := range c.points {
		rows = append(rows, row{fmt.Sprintf("%s, %.0f %s", c.name, p.x, c.of), p.y, p.floor, c.floorIs, c.unit, c.bounds[p.x]})
	}
	if len(c.points) < 2 {
		return rows
	}
	limit := bound{}
	if c.growth > 0 {
		limit = atMost(c.growth)
	}
	return append(rows, row{c.name + ": growth with " + c.of, c.exponent(), 0, "exponent", count, limit})
}

// scaling is a group of figures that are measured for several sizes. Its curves are drawn.
func (b *bench) scaling(of string, take func(context.Context, *bench, *server, *httpEcho) ([]*curve, []row, error)) group {
	return group{name: "scale: " + of, flags: []string{unsynced}, take: func(ctx context.Context, s *server) (rows []row, err error) {
		http, err := b.startHTTPEcho(ctx)
		if err != nil {
			return nil, err
		}
		defer http.close()
		curves, left, err := take(ctx, b, s, http)
		for _, c := range curves {
			rows = append(rows, c.rows()...)
		}
		b.curves = append(b.curves, curves...)
		return append(rows, left...), err
	}}
}

// scaleAgents has more and more agents on one server.
func scaleAgents(ctx context.Context, b *bench, s *server, http *httpEcho) (curves []*curve, left []row, err error) {
	pid := s.cmd.Process.Pid
	empty, unknown := pss(pid)
	const agents = "live agents"
	p50 := &curve{chart: "Time of a send", name: "send: p50", of: agents, unit: seconds, floorIs: "http echo", growth: 0.04}
	p99 := &curve{chart: "Time of a send", name: "send: p99", of: agents, unit: seconds, floorIs: "http echo: p99"}
	server := &curve{chart: "Processor time of a send", name: "send: server's processor time", of: agents, unit: seconds, floorIs: "http echo's server", growth: 0.1}
	child := &curve{chart: "Processor time of a send", name: "send: child's processor time", of: agents, unit: seconds, floorIs: "http echo's process", growth: 0.1}
	metrics := &curve{chart: "GET /metrics", name: "GET /metrics: p50", of: agents, unit: seconds, floorIs: "bare GET, /proc/PID/stat", growth: 1.05, bounds: map[float64]bound{boundAgents: ratioAtMost(1)}}
	idle := &curve{chart: "Memory (PSS)", name: "idle child, memory", of: agents, unit: size, bounds: map[float64]bound{boundAgents: atMost(2 << 20)}}
	each := &curve{chart: "Memory (PSS)", name: "server for each agent, memory", of: agents, unit: size, bounds: map[float64]bound{boundAgents: atMost(64 << 10)}}
	curves = []*curve{p50, p99, server, child, metrics, idle, each}
	echoes, err := childrenOf(http.process.cmd.Process.Pid)
	if err != nil {
		return nil, nil, err
	}
	var ids []string
	steps := slices.DeleteFunc([]int{1, 10, 100, 1000, 5000}, func(n int) bool { return n >= b.size.agents })
	for _, n := range append(steps, b.size.agents) {
		if most, why := s.room(ctx, len(ids)); len(ids) > 0 && n > most {
			return curves, []row{{fmt.Sprintf("%d %s", n, agents), math.NaN(), 0, why, count, bound{}}}, err
		}
		for len(ids) < n {
			id := s.newID()
			if err := s.create(ctx, id); err != nil {
				return curves, nil, fmt.Errorf("with %d agents: %w", len(ids), err)
			}
			ids = append(ids, id)
		}
		pids, err := s.pids(ctx)
		if err != nil {
			return curves, nil, err
		}
		x, children := float64(n), slices.Collect(maps.Values(pids))
		if unknown == nil {
			one, itself, err := memory(children, pid)
			if err != nil {
				return curves, nil, err
			}
			idle.add(x, one, 0)
			each.add(x, max(itself-float64(empty), 0)/x, 0)
		}
		bare, err := measureRequests(ctx, b.size.scaleSends, http.process.cmd.Process.Pid, echoes[:1], func(int) error { return http.post(ctx, 0) })
		if err != nil {
			return curves, nil, err
		}
		found, err := measureRequests(ctx, b.size.scaleSends, pid, children, func(i int) error { return s.send(ctx, ids[i%n], oneWord) })
		if err != nil {
			return curves, nil, err
		}
		p50.add(x, median(found.times), median(bare.times))
		p99.add(x, p99th.of(found.times), p99th.of(bare.times))
		server.add(x, found.server, bare.server)
		child.add(x, found.children, bare.children)
		scrape, floor, err := s.scrape(ctx, http, pids)
		if err != nil {
			return curves, nil, err
		}
		metrics.add(x, scrape, floor)
	}
	return curves, nil, unknown
}

// room is how many agents a server can have, by what those that there are take, and why no more.
func (s *server) room(ctx context.Context, now int) (most int, why string) {
	most = math.MaxInt
	limit := func(there, have, each float64, what string) {
		if n := int((there - have) / each * 0.95); each > 0 && now+n < most {
			most, why = now+n, fmt.Sprintf("not measured: there is room for about %d, by %s", now+n, what)
		}
	}
	pids, err := s.pids(ctx)
	if err != nil || len(pids) == 0 {
		return most, ""
	}
	n := float64(len(pids))
	if open, err := descriptors(s.cmd.Process.Pid); err == nil {
		limits, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", s.cmd.Process.Pid))
		_, rest, _ := strings.Cut(string(limits), "Max open files")
		if fields := strings.Fields(rest); len(fields) > 1 {
			limit(number(fields[1]), float64(open), float64(open)/(n+20), "open files ("+fields[1]+")") // 20 are there without agents
		}
	}
	threads := 0
	for _, pid := range pids {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		threads += len(tasks)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	_, all, _ := strings.Cut(string(load), "/")
	all, _, _ = strings.Cut(all, " ")
	if data, err := os.ReadFile("/proc/sys/kernel/pid_max"); err == nil {
		limit(number(strings.TrimSpace(string(data))), number(all), float64(threads)/n, "threads (kernel.pid_max)")
	}
	return most, why
}

// number is 0 for what is none.
func number(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// memory is the mean of some of the children, and the server, in bytes.
func memory(children []int, server int) (child, itself float64, err error) {
	looked := children[:min(len(children), 200)]
	for _, pid := range append([]int{server}, looked...) {
		one, failed := pss(pid)
		err = errors.Join(err, failed)
		if child += float64(one); pid == server {
			child, itself = 0, float64(one)
		}
	}
	return child / float64(len(looked)), itself, err
}

// requests are what n requests took, one after the other: the seconds of each, and the
// processor time of one in a server and in all of its children. Before that, it makes one of
// each child, as what a first one takes is not counted.
type requests struct {
	times            []float64
	server, children float64
}

func measureRequests(ctx context.Context, n, server int, children []int, do func(i int) error) (r requests, err error) {
	next := 0
	again := func() error { next++; return do(next - 1) }
	if _, err := times(ctx, max(len(children), 1), again); err != nil {
		return r, err
	}
	all, err := spending(n, func() (err error) {
		r.times, err = times(ctx, n, again)
		return err
	}, append([]int{server}, children...)...)
	if err != nil {
		return r, err
	}
	for _, one := range all[1:] {
		r.children += one.processor
	}
	r.server = all[0].processor
	return r, nil
}

// scrape is GET /metrics of a server with agents. Its floor reads /proc/PID/stat of each of
// their processes, as the first scrape does, and gets as many bytes from a bare server.
func (s *server) scrape(ctx context.Context, http *httpEcho, pids map[string]int) (scrape, floor float64, err error) {
	want := fmt.Sprintf("\nnexus_agents{state=\"ready\"} %d\n", len(pids))
	length := 0
	taken := of(func() (float64, error) {
		return p50(ctx, 5, func() error {
			text, err := get(ctx, s.client, s.url+"/metrics", s.key)
			if length = len(text); err == nil && !strings.Contains(text, want) {
				err = fmt.Errorf("the metrics lack %q", want)
			}
			return err
		})
	})
	bare := of(func() (float64, error) {
		return p50(ctx, 5, func() error {
			for _, pid := range pids {
				if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil {
					return err
				}
			}
			_, err := get(ctx, http.client, http.url+"/"+strconv.Itoa(length), "")
			return err
		})
	})
	err = inTurns(ctx, 10, taken, bare)
	return taken.median(), bare.median(), err
}

// scaleStreams has more and more agents talk at once, each to a reader of its own.
func scaleStreams(ctx context.Context, b *bench, s *server, _ *httpEcho) (curves []*curve, _ []row, err error) {
	rate := &curve{chart: "Frames a second, all streams", name: "frames a second", of: "streams", unit: perSec, floorIs: "lines a second", bounds: map[float64]bound{1: ratioAtLeast(0.08)}}
	cost := &curve{chart: "Processor time of a frame", name: "frame: server's processor time", of: "streams", unit: seconds, growth: 0.1}
	for _, n := range []int{1, 16, 256} {
		ids := make([]string, n)
		for i := range ids {
			if ids[i] = s.newID(); s.create(ctx, ids[i]) != nil {
				return nil, nil, fmt.Errorf("no %d agents", n)
			}
		}
		each := b.size.lines / n
		var rates []float64
		found, err := measureRequests(ctx, 3, s.cmd.Process.Pid, nil, func(int) error {
			all, err := perSecond(ctx, n, 1, func(i int) error { return s.readFlood(ctx, ids[i], each) })
			rates = append(rates, all*float64(each))
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		lines, err := b.linesPerSecond(ctx, b.size.lines)()
		if err != nil {
			return nil, nil, err
		}
		rate.add(float64(n), median(rates), lines)
		cost.add(float64(n), found.server/float64(n*each), 0)
	}
	return []*curve{rate, cost}, nil, nil
}

// scaleDeltas has longer and longer turns.
func scaleDeltas(ctx context.Context, b *bench, s *server, _ *httpEcho) (curves []*curve, _ []row, err error) {
	turn := &curve{chart: "Time of a turn", name: "turn", of: "deltas", unit: seconds, floorIs: "lines", growth: 1.05}
	id := s.newID()
	if err := s.create(ctx, id); err != nil {
		return nil, nil, err
	}
	for _, n := range []int{1000, 10_000, 100_000} {
		taken, err := p50(ctx, 5, func() error { return s.readFlood(ctx, id, n) })
		if err != nil {
			return nil, nil, err
		}
		lines, err := b.linesPerSecond(ctx, n)()
		if err != nil {
			return nil, nil, err
		}
		turn.add(float64(n), taken, float64(n)/lines)
	}
	return []*curve{turn}, nil, nil
}

// scaleMessages has agents with longer and longer conversations, which were saved.
func scaleMessages(ctx context.Context, b *bench, s *server, http *httpEcho) (curves []*curve, _ []row, err error) {
	const messages = "messages before"
	send := &curve{chart: "Time of a send", name: "send: p50", of: messages, unit: seconds, floorIs: "http echo", growth: 0.06}
	held := &curve{chart: "Memory (PSS)", name: "child, memory", of: messages, unit: size}
	for _, n := range []int{10, 100, 1000, longMessages} {
		name := "messages-" + strconv.Itoa(n)
		text, err := b.conversation(name, n)
		if err := errors.Join(err, os.WriteFile(s.session(name), text, 0o600), s.create(ctx, name)); err != nil {
			return nil, nil, err
		}
		sends, bare := of(func() (float64, error) {
			return p50(ctx, 50, func() error { return s.send(ctx, name, oneWord) })
		}), of(func() (float64, error) { return p50(ctx, 50, func() error { return http.post(ctx, 0) }) })
		if err := inTurns(ctx, 4, bare, sends); err != nil {
			return nil, nil, err
		}
		send.add(float64(n), sends.median(), bare.median())
		pid, err := s.pid(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		if used, err := pss(pid); err == nil {
			held.add(float64(n), float64(used), 0)
		}
	}
	return []*curve{send, held}, nil, nil
}

// readFlood is a turn of n frames with one reader of its events.
func (s *server) readFlood(ctx context.Context, id string, n int) error {
	events, done, err := s.subscribe(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	sent := make(chan error, 1)
	go func() { sent <- s.send(ctx, id, "flood "+strconv.Itoa(n)) }()
	_, err = deltasPerSecond(events, n)
	return errors.Join(err, <-sent)
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
