package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/bare"
	"nexus.internal/supervisor/cluster/runner"
)

// clusterMachines is how many machines a cluster has here.
const clusterMachines = 3

// clusterPatience bounds the wait for something of a cluster.
const clusterPatience = time.Minute

// cluster are the figures of three machines that are one, all of them here, beside those of one server, and of NATS without nexus.
func (b *bench) cluster(ctx context.Context, single *server) (rows []row, err error) {
	floor, err := b.startBare(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, floor.close()) }()
	farm, err := b.startFarm(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, farm.close()) }()
	if err := single.create(ctx, "alone"); err != nil {
		return nil, err
	}
	agents := make([]string, clusterMachines) // one of each machine, of which chance says which one leads the others
	for i, m := range farm.machines {
		agents[i] = fmt.Sprintf("near-%d", i)
		if err := farm.create(ctx, m, agents[i]); err != nil {
			return nil, err
		}
		if err := until(ctx, func() error { return farm.next(i).send(ctx, agents[i], oneWord) }); err != nil { // once it knows of it
			return nil, err
		}
	}
	// Of each series every machine has its turn, a round long: chance says which one leads the others, here and in the floor.
	timed := func(steps ...func(ctx context.Context, machine int) error) *series {
		round := 0
		return of(func() (float64, error) {
			round++
			return p50(ctx, b.size.clusterSends, func() (err error) {
				for i := 0; i < len(steps) && err == nil; i++ {
					err = steps[i](ctx, round%clusterMachines)
				}
				return err
			})
		})
	}
	publishes := floor.bare.Publish
	requests := func(ctx context.Context, _ int) error { return floor.bare.Request(ctx) }
	sends := func(ctx context.Context, i int) error { return farm.machines[i].send(ctx, agents[i], oneWord) }
	request, publish := timed(requests), timed(publishes)
	// What comes behind something else takes longer than the same over and over: so the floors are of such pairs.
	alone := timed(func(ctx context.Context, _ int) error { return single.send(ctx, "alone", oneWord) }, publishes)
	near, requested := timed(sends), timed(sends, requests)
	forwarded := timed(func(ctx context.Context, i int) error { return farm.next(i).send(ctx, agents[i], oneWord) })
	named := timed(func(ctx context.Context, i int) error { return farm.machines[i].sendNamed(ctx, agents[i], oneWord) })
	rateAlone := of(single.sendRate(ctx))
	rateFarm := of(farm.sendRate(ctx))
	if err := inTurns(ctx, b.size.clusterRounds, alone, near, named, forwarded, requested, request, publish, rateAlone, rateFarm); err != nil {
		return nil, err
	}
	none := bound{}
	return []row{
		{"cluster of 3, NATS request to another machine and back: p50", request.median(), 0, "no nexus", seconds, none},
		{"cluster of 3, NATS publish that a majority has synced: p50", publish.median(), 0, "no nexus", seconds, none},
		{"cluster of 3, send to the machine of the agent: p50", near.median(), alone.median(), "a server alone, then one publish", seconds, ratioAtMost(1.3)},
		{"cluster of 3, the same with a request_id: p50", named.median(), alone.median(), "a server alone, then one publish", seconds, none},
		{"cluster of 3, send through another machine: p50", forwarded.median(), near.median() + 1.5*(requested.median()-near.median()), "the row above + 1.5 × request behind it", seconds, ratioAtMost(1)},
		{fmt.Sprintf("cluster of 3, sends a second, %d agents on all", rateAgents), rateFarm.median(), rateAlone.median(), "a server alone", perSec, none},
	}, nil
}

// takeovers are the figures of machines that are killed, each of a new cluster: chance says which machine leads the others.
func takeovers(ctx context.Context, b *bench) ([]row, error) {
	var all []float64
	for range b.size.machines {
		farm, err := b.startFarm(ctx)
		if err != nil {
			return nil, err
		}
		took, err := farm.takeover(ctx, b.size.takenOver)
		if err := errors.Join(err, farm.close()); err != nil {
			return nil, err
		}
		all = append(all, took...)
	}
	return []row{
		{fmt.Sprintf("machine killed until another one answers, %d × %d agents: p50", b.size.machines, b.size.takenOver), median(all), 0, "", seconds, bound{}},
		{"the same: p99", p99(all), 0, "", seconds, atMost(10)},
	}, nil
}

// until tries again what fails, until it does not.
func until(ctx context.Context, try func() error) error {
	limited, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	for {
		err := try()
		if err == nil || ratelimit.Sleep(limited, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// freeAddresses are addresses on loopback, of a host that nobody else takes by chance.
func freeAddresses(n int) (all []string, err error) {
	host := fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	for range n {
		l, err := net.Listen("tcp", host)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all, nil
}

// bareFarm are the engines of machines, without servers.
type bareFarm struct {
	engines []*runner.Runner
	links   []*cluster.Link
	bare    *bare.Cluster
}

func (b *bench) startBare(ctx context.Context) (f *bareFarm, err error) {
	f = &bareFarm{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	join, err := freeAddresses(clusterMachines)
	if err != nil {
		return f, err
	}
	for i, listen := range join {
		e, err := runner.Start(ctx, runner.Options{
			Program: filepath.Join(b.bin, "nexus-cluster"), Level: "error", Log: zap.NewNop(),
			Engine: cluster.EngineOptions{Cluster: "bare", Machine: string(rune('a' + i)), Listen: listen, Join: join, Dir: filepath.Join(b.dir, "bare", string(rune('a'+i))), Socket: filepath.Join(b.dir, "bare-"+string(rune('a'+i)))},
		})
		if err != nil {
			return f, err
		}
		f.engines = append(f.engines, e)
		link, err := cluster.Connect(e, "", zap.NewNop())
		if err != nil {
			return f, err
		}
		f.links = append(f.links, link)
	}
	limited, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	f.bare, err = bare.Open(limited, f.links)
	return f, err
}

func (f *bareFarm) close() (err error) {
	if f.bare != nil {
		err = f.bare.Close()
	}
	for _, l := range f.links {
		l.Close()
	}
	for _, e := range f.engines {
		e.Close()
	}
	return err
}

// farm are servers that are machines of one cluster.
type farm struct {
	machines []*server
	shared   string // where the agents work
}

// next is the machine behind one.
func (f *farm) next(i int) *server { return f.machines[(i+1)%len(f.machines)] }

func (b *bench) startFarm(ctx context.Context) (f *farm, err error) {
	dir, err := os.MkdirTemp(b.dir, "farm-")
	if err != nil {
		return nil, err
	}
	f = &farm{shared: filepath.Join(dir, "shared")}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if err := os.Mkdir(f.shared, 0o700); err != nil {
		return f, err
	}
	addresses, err := freeAddresses(clusterMachines)
	if err != nil {
		return f, err
	}
	files := filepath.Join(dir, "machines")
	args := []string{"cluster", "init", files}
	for i, at := range addresses {
		args = append(args, string(rune('a'+i))+"="+at)
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(b.bin, "nexus"), args...).CombinedOutput(); err != nil {
		return f, fmt.Errorf("nexus cluster init: %w: %s", err, out)
	}
	for i := range addresses {
		s, err := b.startServer(ctx, unsynced, "--cluster-files", filepath.Join(files, string(rune('a'+i))), "--shared-path", f.shared)
		if err != nil {
			return f, err
		}
		f.machines = append(f.machines, s)
	}
	return f, nil
}

func (f *farm) close() (err error) {
	for _, s := range f.machines {
		err = errors.Join(err, s.stop())
	}
	return err
}

// create makes an agent on a machine, once a majority is there.
func (f *farm) create(ctx context.Context, on *server, id string) error {
	return until(ctx, func() error {
		return on.call(ctx, "/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"cwd":%q}`, id, f.shared), nil)
	})
}

// sendRate is sends a second to rateAgents new agents, which the machines have in turns, each asked at its machine by a client of its own.
func (f *farm) sendRate(ctx context.Context) step {
	return func() (rate float64, err error) {
		ids, owners := make([]string, rateAgents), make([]*server, rateAgents)
		for i := range ids {
			owners[i] = f.machines[i%len(f.machines)]
			ids[i] = f.machines[0].newID()
			if err := f.create(ctx, owners[i], ids[i]); err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, owners[i].destroy(ctx, ids[i])) }()
		}
		return perSecond(ctx, rateAgents, rateSends, func(i int) error { return owners[i].send(ctx, ids[i], oneWord) })
	}
}

// takeover kills the last machine, which has some agents, and is for how long each was not answered for at the first one.
func (f *farm) takeover(ctx context.Context, agents int) (took []float64, err error) {
	last := len(f.machines) - 1
	lost, first := f.machines[last], f.machines[0]
	ids := make([]string, agents)
	for i := range ids {
		ids[i] = fmt.Sprintf("moved-%d", i)
		if err := f.create(ctx, lost, ids[i]); err != nil {
			return nil, err
		}
		if err := until(ctx, func() error { return first.send(ctx, ids[i], oneWord) }); err != nil {
			return nil, err
		}
	}
	if err := lost.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	began := time.Now()
	f.machines = f.machines[:last]
	_ = lost.cmd.Wait() // that it was killed
	took = make([]float64, agents)
	errs := make([]error, agents)
	var waiting sync.WaitGroup
	for i, id := range ids {
		waiting.Go(func() {
			errs[i] = until(ctx, func() error { return first.call(ctx, "/agent/"+id, "get_model", `{}`, nil) })
			took[i] = time.Since(began).Seconds()
		})
	}
	waiting.Wait()
	return took, errors.Join(errs...)
}
