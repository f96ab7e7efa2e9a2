package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// processorSends is how many sends, in one round, the processor's time is divided by.
const processorSends = 1000

// spent is what a process has used up to some moment, or from one moment to another.
type spent struct {
	processor float64 // seconds, in the process and in the kernel for it
	kernel    float64 // of them in the kernel, to a hundredth of a second
	calls     float64 // system calls; 0 where they cannot be counted
}

func (s spent) minus(o spent) spent {
	return spent{s.processor - o.processor, s.kernel - o.kernel, s.calls - o.calls}
}

func (s spent) each(n int) spent {
	return spent{s.processor / float64(n), s.kernel / float64(n), s.calls / float64(n)}
}

// spending is what do costs each of some processes, divided by n, which is how often it does
// something.
func spending(n int, do func() error, pids ...int) ([]spent, error) {
	counters := make([]*callCounter, len(pids))
	for i, pid := range pids {
		if len(pids) < 10 { // each of their threads takes a descriptor
			counters[i] = countCalls(pid)
			defer counters[i].close()
		}
	}
	look := func() (all []spent, err error) {
		for i, pid := range pids {
			one, err := processorTime(pid)
			if err != nil {
				return nil, err
			}
			one.calls = counters[i].count()
			all = append(all, one)
		}
		return all, nil
	}
	before, err := look()
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	after, err := look()
	for i := range after {
		after[i] = after[i].minus(before[i]).each(n)
	}
	return after, err
}

// costs are what one round of something costs a server and a child.
type costs struct{ server, child spentSeries }

// spentSeries is what spent was in each round.
type spentSeries struct{ processor, kernel, calls *series }

// costsOf are the costs that each round measures. The first series measures, the others tell
// what it found, so all must be taken in their order.
func costsOf(measure func() ([]spent, error)) costs {
	var server, child spent
	told := func(v *float64) *series { return of(func() (float64, error) { return *v, nil }) }
	c := costs{
		server: spentSeries{kernel: told(&server.kernel), calls: told(&server.calls)},
		child:  spentSeries{told(&child.processor), told(&child.kernel), told(&child.calls)},
	}
	c.server.processor = of(func() (float64, error) {
		found, err := measure()
		if err != nil {
			return 0, err
		}
		server, child = found[0], found[1]
		return server.processor, nil
	})
	return c
}

func (c costs) all() []*series {
	return []*series{c.server.processor, c.server.kernel, c.server.calls, c.child.processor, c.child.kernel, c.child.calls}
}

// rows are the figures of costs, beside those of bare processes; bare may be the zero value.
func (c costs) rows(name string, bare costs, server, child bound) (rows []row) {
	add := func(what string, measured, floor *series, floorIs string, u unit, b bound) {
		if measured.median() == 0 && u == count {
			return // it cannot be counted here
		}
		one := row{figure: name + ": " + what, measured: measured.median(), unit: u, bound: b}
		if floor != nil {
			one.floor, one.floorIs = floor.median(), floorIs
		}
		rows = append(rows, one)
	}
	for _, p := range []struct {
		whose, floorIs string
		what, floor    spentSeries
		bound          bound
	}{
		{"server", "http echo's server", c.server, bare.server, server},
		{"child", "http echo's process", c.child, bare.child, child},
	} {
		add(p.whose+"'s processor time", p.what.processor, p.floor.processor, p.floorIs, seconds, p.bound)
		add(p.whose+"'s, in the kernel", p.what.kernel, p.floor.kernel, p.floorIs, seconds, bound{})
		add(p.whose+"'s system calls", p.what.calls, p.floor.calls, p.floorIs, count, bound{})
	}
	return rows
}

// processor are the figures of the processor's time: what a send, a frame of a stream, a
// start and an idle agent cost, beside the same of bare processes.
func (b *bench) processor(ctx context.Context, s *server) (rows []row, err error) {
	http, err := b.startHTTPEcho(ctx)
	if err != nil {
		return nil, err
	}
	defer http.close()
	id := s.newID()
	if err := s.create(ctx, id); err != nil {
		return nil, err
	}
	child, err := s.pid(ctx, id)
	if err != nil {
		return nil, err
	}
	echoes, err := childrenOf(http.process.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	of := func(server, child, n int, do func() error) costs {
		return costsOf(func() ([]spent, error) { return spending(n, do, server, child) })
	}
	sends := of(s.cmd.Process.Pid, child, processorSends, func() error {
		_, err := times(ctx, processorSends, func() error { return s.send(ctx, id, oneWord) })
		return err
	})
	bare := of(http.process.cmd.Process.Pid, echoes[0], processorSends, func() error {
		_, err := times(ctx, processorSends, func() error { return http.post(ctx, 0) })
		return err
	})
	frames := of(s.cmd.Process.Pid, child, b.size.lines, func() error { return s.readFlood(ctx, id, b.size.lines) })
	if err := inTurns(ctx, max(b.size.rounds/4, 3), slices.Concat(bare.all(), sends.all(), frames.all())...); err != nil {
		return nil, err
	}
	rows = append(sends.rows("send", bare, ratioAtMost(2), ratioAtMost(3)), frames.rows("frame of a stream", costs{}, bound{}, bound{})...)
	created, err := b.createProcessor(ctx, s)
	if err != nil {
		return rows, err
	}
	idle, err := s.idleProcessor(ctx, b.size.idleAgents, b.size.idleTime)
	return append(append(rows, created...), idle...), err
}

// createProcessor is what an agent's creation costs the server, and its process until it is
// ready; beside a bare process started.
func (b *bench) createProcessor(ctx context.Context, s *server) ([]row, error) {
	create := costsOf(func() ([]spent, error) {
		id := s.newID()
		all, err := spending(1, func() error { return s.create(ctx, id) }, s.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		pid, err := s.pid(ctx, id)
		if err != nil {
			return nil, err
		}
		child, err := processorTime(pid)
		return append(all, child), errors.Join(err, s.destroy(ctx, id))
	})
	bare := of(func() (float64, error) {
		e, err := startEcho(exec.CommandContext(ctx, b.floor(), "echo"))
		if err != nil {
			return 0, err
		}
		defer e.close()
		spent, err := processorTime(e.cmd.Process.Pid)
		return spent.processor, err
	})
	return measure(ctx, b.size.starts,
		figure{"create_agent: server's processor time", create.server.processor, bare, "fork-exec's process", seconds, bound{}, p50th},
		figure{"create_agent: child's, until it is ready", create.child.processor, bare, "fork-exec's process", seconds, bound{}, p50th},
	)
}

// idleProcessor is what agents use that nobody asks anything.
func (s *server) idleProcessor(ctx context.Context, agents int, during time.Duration) ([]row, error) {
	var pids []int
	for range agents {
		id := s.newID()
		if err := s.create(ctx, id); err != nil {
			return nil, err
		}
		pid, err := s.pid(ctx, id)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	select { // until what follows a start is over
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	look := func() (processor, wakeUps float64, err error) {
		for _, pid := range pids {
			used, err := processorTime(pid)
			if err != nil {
				return 0, 0, err
			}
			woken, err := wakeUpsOf(pid)
			if err != nil {
				return 0, 0, err
			}
			processor, wakeUps = processor+used.processor, wakeUps+woken
		}
		return processor, wakeUps, nil
	}
	processor, wakeUps, err := look()
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(during):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	processorNow, wakeUpsNow, err := look()
	if err != nil {
		return nil, err
	}
	each := float64(agents) * during.Minutes()
	remark := fmt.Sprintf("%d agents for %.0f s", agents, during.Seconds())
	return []row{
		{"idle agent: processor time a minute", (processorNow - processor) / each, 0, remark, seconds, bound{}},
		{"idle agent: wake-ups a minute", (wakeUpsNow - wakeUps) / each, 0, remark, count, atMost(1)},
	}, nil
}

// wakeUpsOf is how often the threads of a process have gone from waiting to running.
func wakeUpsOf(pid int) (float64, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := strings.Cut(string(data), "\nvoluntary_ctxt_switches:")
		number, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += n
	}
	return sum, nil
}

// childrenOf are the processes that a process has started by any of its threads.
func childrenOf(pid int) ([]int, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(data)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			pids = append(pids, child)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("process %d has no children", pid)
	}
	return pids, nil
}
