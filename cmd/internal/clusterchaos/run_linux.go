package clusterchaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// Options say what is attacked.
type Options struct {
	Nexus    string // path of the program
	Machines int    // 2 to 5
	Seed     uint64
	Time     time.Duration // of the attack
	Agents   int
	Dir      string // empty, for all that is written
	Progress io.Writer
}

const (
	startTimeout = time.Minute     // until a majority is there
	backTimeout  = 2 * time.Minute // until all answer after the last attack
	checkTimeout = 2 * time.Minute // for the model
)

// run is one run.
type run struct {
	o        Options
	machines []*machine
	talkers  []*talker
	start    time.Time

	mu      sync.Mutex // guards what follows
	history []porcupine.Operation
	running map[string]int // sends that are under way, and by how many
	facts   map[string]int
	faults  []string // what was promised otherwise
}

// Run attacks a cluster. If ctx ends, the attack does, and what has happened is judged. The error says what kept it from being judged.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	runtime.LockOSThread() // see machine
	defer runtime.UnlockOSThread()
	r := &run{o: o, start: time.Now(), running: map[string]int{}, facts: map[string]int{}}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Time+10*time.Minute)
	defer cancel()
	if err := r.prepare(); err != nil {
		return nil, err
	}
	defer func() {
		for _, m := range r.machines {
			err = errors.Join(err, m.end(syscall.SIGKILL))
		}
	}()
	if err := r.begin(whole); err != nil {
		return nil, err
	}
	r.progress("attack %d machines with %d agents for %v, seed %d", o.Machines, o.Agents, o.Time, o.Seed)
	attacked, calm := context.WithTimeout(ctx, o.Time)
	defer calm()
	var talking sync.WaitGroup
	for _, t := range r.talkers {
		talking.Go(func() { t.talk(attacked, whole) })
	}
	err = r.attack(attacked)
	calm()
	back := time.Now()
	talking.Wait()
	if err != nil {
		return nil, err
	}
	report = &Report{Options: o}
	r.progress("read what every machine has")
	r.settle(whole, back, report)
	r.progress("compare %d operations with the model", len(r.history))
	return report, r.judge(report)
}

func (r *run) progress(format string, args ...any) {
	fmt.Fprintf(r.o.Progress, "%4.0f s  %s\n", time.Since(r.start).Seconds(), fmt.Sprintf(format, args...))
}

// prepare makes the homes and the certificates.
func (r *run) prepare() error {
	args := []string{"cluster", "init", filepath.Join(r.o.Dir, "files")}
	work := filepath.Join(r.o.Dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	play, err := scenario()
	if err == nil {
		err = os.WriteFile(filepath.Join(r.o.Dir, scenarioFile), play, 0o600)
	}
	if err != nil {
		return err
	}
	network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250)) // of which nobody else takes a port
	for i := range r.o.Machines {
		l, err := net.Listen("tcp", fmt.Sprintf("%s%d:0", network, i+1))
		if err != nil {
			return err
		}
		defer l.Close()
		m := &machine{nexus: r.o.Nexus, name: string(rune('a' + i)), dir: r.o.Dir, work: work}
		args = append(args, m.name+"="+l.Addr().String())
		r.machines = append(r.machines, m)
		if err := errors.Join(os.Mkdir(m.home(), 0o700), os.WriteFile(filepath.Join(m.home(), "config.json"), []byte(config), 0o600)); err != nil {
			return err
		}
	}
	if out, err := exec.Command(r.o.Nexus, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("nexus cluster init: %w: %s", err, out)
	}
	for agent := range r.o.Agents {
		name := fmt.Sprintf("agent%d", agent)
		for range 2 {
			n := len(r.talkers)
			r.talkers = append(r.talkers, &talker{r: r, number: n, agent: name, draws: rand.New(rand.NewPCG(r.o.Seed, uint64(n)))})
		}
	}
	return nil
}

// begin starts the machines and makes the agents, each on the next machine.
func (r *run) begin(ctx context.Context) error {
	r.progress("start %d machines", len(r.machines))
	for _, m := range r.machines {
		if err := m.start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for i, t := range r.talkers {
		if i%2 > 0 {
			continue
		}
		p := api.CreateAgentParams{AgentID: &t.agent, Cwd: &r.machines[0].work}
		for {
			_, err := client.Do(ctx, r.machines[i/2%len(r.machines)].call(), "", api.CreateAgent, p)
			if err == nil {
				break
			}
			if !pause(ctx, 200*time.Millisecond) {
				return fmt.Errorf("create %s: %w", t.agent, err)
			}
		}
	}
	return nil
}

// attack does harm until ctx ends, and then has all machines run.
func (r *run) attack(ctx context.Context) error {
	draws := rand.New(rand.NewPCG(r.o.Seed, 1<<32))
	some := func() *machine { return r.machines[draws.IntN(len(r.machines))] }
	for pause(ctx, time.Second+time.Duration(draws.IntN(6000))*time.Millisecond) {
		m, long := some(), time.Second+time.Duration(draws.IntN(14000))*time.Millisecond
		var err error
		switch n := draws.IntN(10); {
		case n < 3:
			r.count("machines killed")
			err = r.down(ctx, long, m)
		case n < 5:
			r.count("engines killed")
			if _, engine := m.processes(); engine != nil {
				_ = engine.Kill() // it may have ended
			}
		case n < 8:
			r.count("machines that stood still")
			r.freeze(ctx, long, m)
		case n < 9:
			r.count("engines that stood still")
			if _, engine := m.processes(); engine != nil {
				_ = engine.Signal(syscall.SIGSTOP)
				pause(ctx, long)
				_ = engine.Signal(syscall.SIGCONT)
			}
		default:
			r.count("two machines killed at once")
			err = r.down(ctx, long, m, some())
		}
		if err != nil {
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

// down kills machines, and starts them again.
func (r *run) down(ctx context.Context, long time.Duration, all ...*machine) error {
	slices.SortFunc(all, func(a, b *machine) int { return strings.Compare(a.name, b.name) })
	all = slices.Compact(all)
	for _, m := range all {
		if err := m.failed(); err != nil {
			return err
		}
		if err := m.end(syscall.SIGKILL); err != nil {
			return err
		}
	}
	pause(ctx, long)
	for _, m := range all {
		if err := m.start(); err != nil {
			return err
		}
	}
	return nil
}

// freeze has a machine stand still.
func (r *run) freeze(ctx context.Context, long time.Duration, m *machine) {
	server, engine := m.processes()
	var all []*os.Process
	for _, p := range []*os.Process{server, engine} {
		if p != nil && p.Signal(syscall.SIGSTOP) == nil {
			all = append(all, p)
		}
	}
	pause(ctx, long)
	for _, p := range all {
		_ = p.Signal(syscall.SIGCONT) // it is stopped
	}
}

// settle waits until each agent answers at each machine, repeats all sends, and reads all conversations at all machines.
func (r *run) settle(ctx context.Context, back time.Time, report *Report) {
	ctx, cancel := context.WithTimeout(ctx, backTimeout)
	defer cancel()
	for _, t := range r.talkers {
		for _, m := range r.machines {
			for t.read(ctx, m) == nil && pause(ctx, 100*time.Millisecond) {
			}
		}
	}
	if report.Back = time.Since(back); ctx.Err() != nil {
		r.broken("not all agents answer at all machines %s after the attack", backTimeout)
		return
	}
	for _, t := range r.talkers {
		for _, id := range t.last() {
			t.send(ctx, id)
		}
	}
	for i, t := range r.talkers {
		if i%2 > 0 {
			continue
		}
		first := t.read(ctx, r.machines[0])
		for _, m := range r.machines[1:] {
			if got := t.read(ctx, m); !slices.Equal(got, first) {
				r.broken("%s has %d turns at %s and %d at %s", t.agent, len(first), r.machines[0].name, len(got), m.name)
			}
		}
	}
}

// judge compares the history with the model, agent by agent, and writes down what cannot have happened.
func (r *run) judge(report *Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []porcupine.Operation
	for agent, history := range byAgent(r.history) {
		result, info := porcupine.CheckOperationsVerbose(model(), history, checkTimeout)
		if all = append(all, history...); result == porcupine.Ok {
			continue
		}
		path := filepath.Join(r.o.Dir, agent+".html")
		if err := porcupine.VisualizePath(model(), info, path); err != nil {
			return err
		}
		r.faults = append(r.faults, fmt.Sprintf("what %s answered cannot be (%s): see %s", agent, result, path))
	}
	report.Operations, report.Facts, report.Broken = len(all), r.facts, r.faults
	return nil
}

func (r *run) now() int64 { return int64(time.Since(r.start)) }

// began notes that a send is under way, and says when that is.
func (r *run) began(id string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[id]++
	return r.now()
}

func (r *run) over(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[id]--; r.running[id] == 0 {
		delete(r.running, id)
	}
}

// besides are the sends that are under way now.
func (r *run) besides() (ids []string, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.running {
		ids = append(ids, id)
	}
	return ids, r.now()
}

// note takes an operation that has just been answered.
func (r *run) note(o porcupine.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Return = r.now()
	r.history = append(r.history, o)
	if o.Input.(op).send == "" {
		r.facts["conversations read"]++
	} else {
		r.facts["sends "+o.Output.(answer).outcome]++
	}
}

func (r *run) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if what == "" {
		what = "connections broken"
	}
	r.facts[what]++
}

// broken notes what was promised otherwise.
func (r *run) broken(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf("%.3f s: ", time.Since(r.start).Seconds())+fmt.Sprintf(format, args...))
}
