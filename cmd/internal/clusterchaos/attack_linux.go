package clusterchaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attack is a kind of harm, as the report has it.
type attack string

const (
	machineKilled   attack = "machines killed"
	twoKilled       attack = "two machines killed at once"
	engineKilled    attack = "engines killed"
	machineStill    attack = "machines that stood still"
	engineStill     attack = "engines that stood still"
	machineCut      attack = "machines cut off"
	machineDeaf     attack = "machines cut off in one direction"
	linkSlow        attack = "links with delay"
	linkLossy       attack = "links with loss"
	diskFull        attack = "disks filled"
	clockLies       attack = "wall clocks that jumped"
	longestFault           = 15 * time.Second
	longestDelay           = 400 * time.Millisecond // of a packet
	highestLoss            = 0.3                    // part of the packets
	farthestLie            = 48 * time.Hour         // of a wall clock, ahead and behind
	leastFreeToFill        = 1 << 20                // bytes; a file of that many is written when the disk is free again
)

// attacks are those that this run can make, as often as each is there.
func (r *run) attacks() []attack {
	all := []attack{machineKilled, machineKilled, engineKilled, machineStill, machineStill, engineStill, twoKilled}
	if r.network != nil {
		all = append(all, machineCut, machineCut, machineDeaf, linkSlow, linkLossy)
	}
	if r.machines[0].disk != "" {
		all = append(all, diskFull, diskFull)
	}
	if r.machines[0].lies {
		all = append(all, clockLies)
	}
	return all
}

// attack does harm until ctx ends, and then has all machines run.
func (r *run) attack(ctx context.Context) error {
	draws := rand.New(rand.NewPCG(r.o.Seed, 1<<32))
	all := r.attacks()
	for pause(ctx, time.Second+time.Duration(draws.IntN(6000))*time.Millisecond) {
		what, which, long := all[draws.IntN(len(all))], draws.IntN(len(r.machines)), time.Second+time.Duration(draws.Int64N(int64(longestFault-time.Second)))
		r.count(string(what))
		r.progress("%s: %s", what, r.machines[which].name)
		if err := r.do(ctx, what, which, long, draws); err != nil {
			return err
		}
	}
	for _, m := range r.machines {
		if err := m.failed(); err != nil {
			return err
		}
	}
	return nil
}

// do makes one attack, which is over when it returns.
func (r *run) do(ctx context.Context, what attack, which int, long time.Duration, draws *rand.Rand) error {
	m := r.machines[which]
	switch what {
	case machineKilled:
		return r.down(ctx, long, m)
	case twoKilled:
		return r.down(ctx, long, m, r.machines[draws.IntN(len(r.machines))])
	case engineKilled:
		if _, engine := m.processes(); engine != nil {
			_ = engine.Kill() // it may have ended
		}
	case machineStill:
		server, engine := m.processes()
		r.freeze(ctx, long, server, engine)
	case engineStill:
		_, engine := m.processes()
		r.freeze(ctx, long, engine)
	case machineCut:
		r.fault(ctx, long, which, linkFault{cut: true}, true, true)
	case machineDeaf:
		from := draws.IntN(2) == 0
		r.fault(ctx, long, which, linkFault{cut: true}, from, !from)
	case linkSlow:
		r.fault(ctx, long, which, linkFault{delay: time.Duration(draws.Int64N(int64(longestDelay)))}, true, true)
	case linkLossy:
		r.fault(ctx, long, which, linkFault{loss: highestLoss * draws.Float64()}, true, true)
	case diskFull:
		return r.fill(ctx, long, m)
	case clockLies:
		return m.lie(time.Duration(draws.Int64N(int64(2*farthestLie))) - farthestLie)
	}
	return nil
}

// fault has the links of a machine be faulty for a while.
func (r *run) fault(ctx context.Context, long time.Duration, which int, f linkFault, from, to bool) {
	r.network.set(which, f, from, to)
	defer r.network.set(which, linkFault{}, true, true)
	pause(ctx, long)
}

// down kills machines, and starts them again.
func (r *run) down(ctx context.Context, long time.Duration, all ...*machine) error {
	slices.SortFunc(all, func(a, b *machine) int { return strings.Compare(a.name, b.name) })
	all = slices.Compact(all)
	gone, back := context.WithCancel(ctx)
	defer back()
	if len(all) == 1 {
		defer r.takeovers(gone, all[0])()
	}
	for _, m := range all {
		if err := m.kill(); err != nil {
			return err
		}
	}
	pause(ctx, long)
	back()
	for _, m := range all {
		if err := m.start(); err != nil {
			return err
		}
	}
	return nil
}

// freeze has processes stand still; those that are nil do not run.
func (r *run) freeze(ctx context.Context, long time.Duration, processes ...*os.Process) {
	var all []*os.Process
	for _, p := range processes {
		if p != nil && p.Signal(syscall.SIGSTOP) == nil {
			all = append(all, p)
		}
	}
	pause(ctx, long)
	for _, p := range all {
		_ = p.Signal(syscall.SIGCONT) // it may have been killed meanwhile
	}
}

// fill leaves no byte on the disk of a machine, for a while.
func (r *run) fill(ctx context.Context, long time.Duration, m *machine) (err error) {
	r.setFull(true)
	defer r.setFull(false)
	path := filepath.Join(m.disk, "ballast")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(path)) }()
	var free unix.Statfs_t
	if err := unix.Statfs(m.disk, &free); err != nil {
		return err
	}
	if err := unix.Fallocate(int(file.Fd()), 0, 0, int64(free.Bavail)*free.Bsize); err != nil && !errors.Is(err, syscall.ENOSPC) { //nolint:gosec // of a small disk
		return fmt.Errorf("fill the disk of %s: %w", m.name, err)
	}
	for size := leastFreeToFill; size > 0; { // what it had written meanwhile may be gone
		if _, err := file.Seek(0, 2); err != nil {
			return err
		}
		if _, err := file.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	pause(ctx, long)
	return nil
}
