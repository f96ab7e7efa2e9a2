package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
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
	// Kind is that of the agents, "" for those of nexus on the offline model, and Command its program, which does
	// what the plan's prompts ask for.
	Kind     string
	Command  []string
	Progress io.Writer
}

// maxExtra is how many descriptors or goroutines more than at first a server may
// have: connections that are just closing, and what the runtime needs once.
const maxExtra = 2

const (
	// sendTimeout is how long a send is tried again that is not accepted or not answered.
	sendTimeout = 2 * time.Minute
	// drainTimeout is how long what goes on at the end of the attack may take, which
	// nobody attacks any more: an agent may be in its longest backoff (SPEC §5.4).
	drainTimeout = time.Minute
	// settleTimeout is how long all repetitions and conversations may take.
	settleTimeout = 2 * time.Minute
)

// maxControlLatency is how long a send of a control agent may take.
const maxControlLatency = 10 * time.Second

// Run attacks a server. If ctx ends, the attack does, and what has happened is
// judged. The error says what kept it from being judged; what is violated is in
// the report.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	runtime.LockOSThread() // see server.start
	defer runtime.UnlockOSThread()
	plan := NewPlan(o.Seed, o.Agents, o.Time)
	control := map[string]bool{}
	for agent := range plan.Control {
		control[plan.Name(agent)] = true
	}
	check := NewChecker(control, maxControlLatency)
	history, err := NewHistory(filepath.Join(o.Dir, "history.jsonl"), check)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, history.Close()) }()
	// What must be done whoever interrupts the attack, unless the server is lost.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Time+10*time.Minute)
	defer cancel()
	s, err := newServer(o, plan, history, cancel)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, s.stop(stepTimeout))
		s.watching.Wait()
	}()
	r := &run{o: o, plan: plan, server: s, history: history, began: time.Now()}
	for _, name := range s.names {
		r.drivers = append(r.drivers, newDriver(s, history, name))
	}
	if err := r.runAll(ctx, whole); err != nil {
		return nil, err
	}
	report = check.Report(plan)
	if o.Kind != "" {
		report.Program = " --kind " + o.Kind + " -- " + strings.Join(o.Command, " ")
	}
	if o.Disk == "" {
		report.NotDone = append(report.NotDone, "the disk was not filled: "+o.NoDisk)
	}
	if r.first.descriptors < 0 {
		report.NotDone = append(report.NotDone, "the server's descriptors were not counted: only root may")
	}
	if !s.isTagged() {
		report.NotDone = append(report.NotDone, "processes were looked for by their marks alone: the server has no tag")
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
	first   resources // by the server, before anything happened
}

func (r *run) progress(format string, args ...any) {
	fmt.Fprintf(r.o.Progress, "%4.0f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// runAll does everything. ctx may end the attack, whole ends all that needs a server.
func (r *run) runAll(ctx, whole context.Context) error {
	r.progress("start a server with %d agents", r.plan.Agents)
	if err := r.server.start(whole); err != nil {
		return err
	}
	var err error
	if r.first, err = r.server.settledResources(whole); err != nil {
		return err
	}
	for _, d := range r.drivers {
		d.follow()
	}
	quiet := r.o.Time / 10
	r.progress("quiet for %v", quiet)
	r.baseline(ctx, whole, quiet)
	r.progress("attack for %v, seed %d", r.o.Time-quiet, r.plan.Seed)
	if err := r.attack(ctx, whole, r.o.Time-quiet); err != nil {
		r.stopFollowing()
		return err
	}
	if !r.server.isDead() {
		r.progress("repeat the last sends, read the conversations and all events")
		r.settleAll(whole)
	}
	r.stopFollowing()
	r.progress("look for what is left")
	r.checkEnd(whole)
	return nil
}

// baseline lets the control agents talk, to know how long that takes.
func (r *run) baseline(ctx, whole context.Context, long time.Duration) {
	limited, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	defer context.AfterFunc(whole, cancel)()
	var talking sync.WaitGroup
	for _, d := range r.drivers[:r.plan.Control] {
		talking.Go(func() {
			for pause(limited, 50*time.Millisecond) {
				d.do(whole, Step{Do: Echo})
			}
		})
	}
	talking.Wait()
}

// attack has everybody do what the plan says. On a slow machine it takes longer
// than that: until each required attack was made, and a control agent answered under
// attack. ctx ends it at once.
func (r *run) attack(ctx, whole context.Context, long time.Duration) error {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(whole, cancel)()
	answering, give := context.WithCancelCause(whole)
	defer give(nil)
	began := time.Now()
	r.history.Add(Record{Kind: AttackBegan})
	var talking sync.WaitGroup
	for i, d := range r.drivers {
		talking.Go(func() { d.talk(limited, answering, began, r.plan.Talk[i]) })
	}
	a := &attacker{server: r.server, history: r.history, plan: r.plan}
	err := a.attack(ctx, whole, began, long)
	cancel()
	if err != nil {
		give(nil) // nobody will answer the drivers any more
	}
	late := time.AfterFunc(drainTimeout, func() { give(context.DeadlineExceeded) })
	defer late.Stop()
	talking.Wait()
	for ctx.Err() == nil && answering.Err() == nil && !r.history.servedUnderAttack() {
		r.drivers[0].do(answering, Step{Do: Echo}) // the first is of the control group
	}
	r.history.Add(Record{Kind: AttackEnded})
	return err
}

// settleAll has each driver settle, four at a time. What is destroyed and created
// then shows what the server forgets to let go each time.
func (r *run) settleAll(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	fourAtOnce(len(r.drivers), func(i int) { r.drivers[i].repeatLastSends(limited, i >= r.plan.Control) })
}

func (r *run) stopFollowing() {
	for _, d := range r.drivers {
		d.unfollow()
	}
}

// checkEnd looks whether all is as it was at first, ends the server and looks
// whether anything is there.
func (r *run) checkEnd(ctx context.Context) {
	s := r.server
	if s.isDead() {
		r.checkNothingLeft("processes after the server's death")
		return
	}
	s.waitNoneLeft(ctx, r.history, "processes of turns and agents that have ended", func() []string { return s.strays(ctx) })
	var last resources
	s.waitNoneLeft(ctx, r.history, "descriptors and goroutines of the server beyond those at its start", func() []string {
		now, err := s.resources(ctx)
		if err != nil {
			return []string{err.Error()}
		}
		last = now
		return now.exceeding(r.first)
	})
	r.progress("the server has %d descriptors and %d goroutines, and had %d and %d at first",
		last.descriptors, last.goroutines, r.first.descriptors, r.first.goroutines)
	if err := s.stop(stepTimeout); err != nil {
		r.history.Add(Record{Kind: Left, Text: err.Error()})
	}
	r.checkNothingLeft("processes after the server's end")
}

// checkNothingLeft looks whether any process is left.
func (r *run) checkNothingLeft(what string) {
	// What ends with the server is not waited for.
	r.server.waitNoneLeft(context.Background(), r.history, what, r.server.processes)
}
