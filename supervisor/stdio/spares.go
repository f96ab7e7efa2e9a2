package stdio

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/proctree"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/proc"
)

const (
	// spareTimeout is how long a spare may take until it waits.
	spareTimeout = 10 * time.Second
	// mostSparePause is the longest pause before a spare that fails is replaced.
	mostSparePause = time.Minute
	// settleTime is how long no spare is started after one was taken: its agent, and
	// whoever waits for that, have the processors.
	settleTime = 4 * time.Millisecond
	// maxBecome bounds the line that makes an agent, in bytes: an empty pipe takes it at
	// once. What is longer goes by a command line.
	maxBecome = 64 << 10
)

// SparePlan says which spares there are to be.
type SparePlan struct {
	Count   int      // how many wait; 0 for none
	Program string   // absolute path of nexus-child, of the build of the server
	Env     []string // the whole environment of agents that have none of their own
}

// SparePlanner says which spares there are to be now. It is safe for concurrent use.
type SparePlanner interface{ SparePlan() SparePlan }

// Spares are processes of nexus-child that have started and wait to become an agent, so
// that one need not wait for the start of its process (SUPERVISION §5.9). Each becomes
// one agent at most, and knows nothing of any before that. They are started by Run, one
// at a time. It is safe for concurrent use; nil has none.
type Spares struct {
	planner SparePlanner
	log     *zap.Logger
	guard   *proc.Guard
	wake    chan struct{}  // one item: Run is to look again
	exits   sync.WaitGroup // of goroutines, one for each spare that waits

	mu      sync.Mutex // guards all below
	waiting []*spare   // the first to start first
	used    uint64
	taken   time.Time // when the last one was
}

// spare is one process that waits.
type spare struct {
	*conn
	program os.FileInfo // before it was started
	plan    SparePlan
	over    chan struct{} // closed when it waits no more
}

// NewSpares returns a Spares without processes. planner is asked whenever one may be started
// or taken. log may be nil, and so may g, as in Launcher.
func NewSpares(planner SparePlanner, log *zap.Logger, g *proc.Guard) *Spares {
	if log == nil {
		log = zap.NewNop()
	}
	return &Spares{planner: planner, log: log.Named("spares"), guard: g, wake: make(chan struct{}, 1)}
}

// Stats is how many spares wait, and how many have become an agent so far.
func (s *Spares) Stats() (waiting int, used uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting), s.used
}

func (s *Spares) lastTaken() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Changed has Run look at the plan, and at the spares, again.
func (s *Spares) Changed() {
	select {
	case s.wake <- struct{}{}:
	default: // it is to look already
	}
}

// Run keeps as many spares as are planned until ctx ends. None is left when it returns.
func (s *Spares) Run(ctx context.Context) {
	defer s.exits.Wait()
	defer s.dismiss(func(int, *spare) bool { return true })
	var last time.Time // that one failed: did not come to wait, or ended while it waited
	failures := 0      // one soon after another
	fail := func() {
		if time.Since(last) > 2*mostSparePause {
			failures = 0
		}
		failures++
		last = time.Now()
	}
	timer := time.NewTimer(mostSparePause)
	defer timer.Stop()
	for {
		plan := s.planner.SparePlan()
		for range s.dismiss(func(i int, one *spare) bool { return i >= plan.Count || !one.fits(plan) }) {
			fail()
		}
		n, _ := s.Stats()
		pause := max(time.Until(last.Add(sparePause(failures))), time.Until(s.lastTaken().Add(settleTime)))
		if n < plan.Count && pause <= 0 {
			one, err := s.start(ctx, plan)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				fail()
				s.log.Warn("start a spare", zap.Error(err), zap.Int("failures", failures))
			default:
				s.add(one)
			}
			continue
		}
		if n >= plan.Count {
			pause = mostSparePause // what waits may fit no more by then
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// sparePause is how long no spare is started after so many failures.
func sparePause(failures int) time.Duration {
	if failures <= 1 {
		return 0
	}
	return min(time.Second<<min(failures-2, 10), mostSparePause)
}

// start starts a spare and waits until it waits. On an error, or if ctx ends, nothing of
// it is left.
func (s *Spares) start(ctx context.Context, plan SparePlan) (*spare, error) {
	program, err := os.Stat(plan.Program)
	if err != nil {
		return nil, err
	}
	p, err := proc.Start(proc.Spec{Argv: []string{plan.Program, protocol.TypeSpare}, Env: plan.Env, Log: s.log, Guard: s.guard})
	if err != nil {
		return nil, err
	}
	one := &spare{conn: newConn(p, s.log), program: program, plan: plan, over: make(chan struct{})}
	ctx, cancel := context.WithTimeoutCause(ctx, spareTimeout, fmt.Errorf("it does not wait after %s", spareTimeout))
	defer cancel()
	unhook := context.AfterFunc(ctx, func() { p.Stop(ctx, nil) })
	f, err := one.Recv()
	if err == nil && f.Type != protocol.TypeSpare {
		err = fmt.Errorf("its first frame is %q", f.Type)
	}
	if !unhook() {
		err = context.Cause(ctx)
	}
	if err != nil {
		exit := one.end()
		return nil, fmt.Errorf("%w (%s) %s", err, exit, exit.Stderr)
	}
	return one, nil
}

// add has a spare wait.
func (s *Spares) add(one *spare) {
	s.mu.Lock()
	s.waiting = append(s.waiting, one)
	s.mu.Unlock()
	s.exits.Go(func() {
		select {
		case <-one.Done():
			s.Changed()
		case <-one.over:
		}
	})
}

// dismiss ends the spares that are not wanted, and those that have ended. It returns how
// many had.
func (s *Spares) dismiss(unwanted func(i int, one *spare) bool) (ended int) {
	s.mu.Lock()
	var left, kept []*spare
	for i, one := range s.waiting {
		if one.ended() || unwanted(i, one) {
			left = append(left, one)
			close(one.over)
		} else {
			kept = append(kept, one)
		}
	}
	s.waiting = kept
	s.mu.Unlock()
	for _, one := range left {
		if one.ended() {
			ended++
			s.log.Warn("a spare ended", zap.Int("pid", one.PID()), zap.Stringer("exit", one.Exit()))
		}
		one.end()
	}
	return ended
}

// fits reports whether a spare is what is planned now: the program may have been replaced,
// or the configuration, and somebody may have stopped the process. While it lives, no
// other file has the number of its own.
func (one *spare) fits(plan SparePlan) bool {
	if stat, err := proctree.ReadStat(one.PID()); err == nil && (stat.State == 'T' || stat.State == 't') {
		return false
	}
	now, err := os.Stat(plan.Program)
	return err == nil && one.plan.Program == plan.Program && slices.Equal(one.plan.Env, plan.Env) && os.SameFile(one.program, now)
}

// ended reports whether the process is gone.
func (one *spare) ended() bool {
	select {
	case <-one.Done():
		return true
	default:
		return false
	}
}

// take makes a spare the agent of a command, and returns it before it is ready; nil if there
// is none, or if that agent wants a process of its own making, as it has limits or else.
func (s *Spares) take(c Command, limited bool, log *zap.Logger) *conn {
	if s == nil || limited {
		return nil
	}
	plan := s.planner.SparePlan()
	line := c.becomeLine(plan)
	if line == nil {
		return nil
	}
	for one := s.pop(plan); one != nil; one = s.pop(plan) {
		one.process.Reassign(log)
		one.log = log
		if one.writer.Write(line) == nil {
			return one.conn
		}
		one.end()
	}
	s.Changed() // what waits does not fit
	return nil
}

// pop takes the first spare that is as planned; nil if there is none.
func (s *Spares) pop(plan SparePlan) *spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.waiting {
		if !one.ended() && one.fits(plan) {
			s.waiting = slices.Delete(s.waiting, i, i+1)
			s.used++
			s.taken = time.Now()
			close(one.over)
			return one
		}
	}
	return nil
}

// LimitsNeedStart reports whether only a process that is started with these limits has them:
// no spare does. The supervisor keeps the limit of a turn.
func LimitsNeedStart(l supervisor.Limits) bool {
	l.TurnSeconds = 0
	return l != (supervisor.Limits{})
}

// becomeLine is what makes a spare of that plan the agent of a command; nil if the agent is
// of another program, or has an environment of its own, which only its start can give it. A
// working directory that it cannot have is for the start to report.
func (c Command) becomeLine(plan SparePlan) []byte {
	if c.Program != plan.Program || len(c.Own) > 0 || !slices.Equal(c.Env, plan.Env) || proc.CheckDir(c.Dir) != nil {
		return nil
	}
	line, err := c.Line()
	if err != nil || len(line) > maxBecome { // no UTF-8, which a command line can have
		return nil
	}
	return line
}
