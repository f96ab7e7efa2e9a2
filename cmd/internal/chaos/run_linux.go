package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// Options say what is attacked, and how.
type Options struct {
	Nexus  string // path of the program
	Seed   uint64
	Time   time.Duration // of the attack, with the quiet before it
	Agents int           // at least 2
	// Dir is an empty directory for all that is written.
	Dir string
	// Disk is an empty directory on a file system of its own (see [Mount]), for
	// the home; if it is "", no disk is filled, and NoDisk says why.
	Disk, NoDisk string
	Progress     io.Writer
}

// slack is how many descriptors or goroutines more than at first a server may
// have: connections that are just closing, and what the runtime needs once.
const slack = 4

// giveUp is how long a send is tried again that is not accepted or not answered.
const giveUp = 2 * time.Minute

// slowest is how long a send of a calm agent may take.
const slowest = 10 * time.Second

// Run attacks a server. If ctx ends, the attack does, and what has happened is
// judged. The error says what kept it from being judged; what is violated is in
// the report.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	runtime.LockOSThread() // see server.start
	defer runtime.UnlockOSThread()
	plan := NewPlan(o.Seed, o.Agents, o.Time)
	calm := map[string]bool{}
	for agent := range plan.Calm {
		calm[plan.Name(agent)] = true
	}
	check := NewChecker(func(agent string) bool { return calm[agent] }, slowest)
	history, err := NewHistory(filepath.Join(o.Dir, "history.jsonl"), check)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, history.Close()) }()
	s, err := newServer(o, plan, history)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(patience)) }()
	r := &run{o: o, plan: plan, server: s, history: history, began: time.Now()}
	for _, name := range s.names {
		r.drivers = append(r.drivers, newDriver(s, history, name))
	}
	if err := r.all(ctx); err != nil {
		return nil, err
	}
	report = check.Report(plan)
	if o.Disk == "" {
		report.NotDone = append(report.NotDone, "the disk was not filled: "+o.NoDisk)
	}
	if r.first.descriptors < 0 {
		report.NotDone = append(report.NotDone, "the server's descriptors were not counted: only root may")
	}
	return report, nil
}

// run is one run.
type run struct {
	o       Options
	plan    Plan
	server  *server
	history *History
	drivers []*driver
	began   time.Time
	first   held // by the server, before anything happened
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.o.Progress, "%4.0f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

func (r *run) all(ctx context.Context) error {
	// What must be done whoever interrupts the attack.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Time+10*time.Minute)
	defer cancel()
	r.say("start a server with %d agents", r.plan.Agents)
	if err := r.server.start(whole); err != nil {
		return err
	}
	var err error
	if r.first, err = r.server.holds(whole); err != nil {
		return err
	}
	for _, d := range r.drivers {
		d.follow()
	}
	quiet := r.o.Time / 10
	r.say("quiet for %v", quiet)
	r.quiet(ctx, whole, quiet)
	r.say("attack for %v, seed %d", r.o.Time-quiet, r.plan.Seed)
	if err := r.attack(ctx, whole, r.o.Time-quiet); err != nil {
		r.leave()
		return err
	}
	r.say("repeat the last sends and read the conversations")
	err = r.settle(whole)
	r.leave()
	if err != nil {
		return err
	}
	r.say("look for what is left")
	return r.end(whole)
}

// quiet lets the calm agents talk, to know how long that takes.
func (r *run) quiet(ctx, whole context.Context, long time.Duration) {
	limited, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var talking sync.WaitGroup
	for _, d := range r.drivers[:r.plan.Calm] {
		talking.Go(func() {
			for pause(limited, 50*time.Millisecond) {
				d.do(whole, Step{Do: Echo})
			}
		})
	}
	talking.Wait()
}

// attack has everybody do what the plan says.
func (r *run) attack(ctx, whole context.Context, long time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	whole, give := context.WithCancel(whole)
	defer give()
	began := time.Now()
	r.history.Add(Record{What: AttackBegan})
	var talking sync.WaitGroup
	for i, d := range r.drivers {
		talking.Go(func() { d.talk(limited, whole, began, r.plan.Talk[i]) })
	}
	a := &attacker{server: r.server, history: r.history, plan: r.plan}
	err := a.attack(limited, whole, began)
	if err != nil {
		cancel()
		give() // nobody will answer the drivers any more
	}
	talking.Wait()
	r.history.Add(Record{What: AttackEnded})
	return err
}

// settle has each driver repeat its last sends and read its conversation, four
// at a time.
func (r *run) settle(ctx context.Context) error {
	var settling sync.WaitGroup
	errs := make([]error, len(r.drivers))
	free := make(chan struct{}, 4)
	for i, d := range r.drivers {
		settling.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			if err := d.settle(ctx); err != nil {
				errs[i] = fmt.Errorf("settle %s: %w", d.agent, err)
			}
		})
	}
	settling.Wait()
	return errors.Join(errs...)
}

func (r *run) leave() {
	for _, d := range r.drivers {
		d.leave()
	}
}

// end looks whether all is as it was at first, ends the server and looks
// whether anything is there.
func (r *run) end(ctx context.Context) error {
	s := r.server
	s.look(ctx, r.history, "processes of tools whose turns have ended", s.tools)
	s.look(ctx, r.history, "descriptors and goroutines of the server beyond those at its start", func() []string {
		now, err := s.holds(ctx)
		if err != nil {
			return []string{err.Error()}
		}
		return now.beyond(r.first)
	})
	if err := s.stop(patience); err != nil {
		r.history.Add(Record{What: Left, Text: err.Error()})
	}
	s.look(ctx, r.history, "processes after the server's end", s.processes)
	return nil
}
