package shell

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

const (
	// maxRunning is how many jobs an agent may have at once, maxJobs how many it knows of,
	// with those that have ended: the oldest of these are forgotten.
	maxRunning = 8
	maxJobs    = 16
)

// Jobs are the background jobs of one agent. They last until they end by themselves, are
// stopped, or Close; no call and no turn ends one. Safe for concurrent use.
//
// Each job has a goroutine, which Close joins.
type Jobs struct {
	following sync.WaitGroup

	mu     sync.Mutex // guards all below; is locked before that of a job
	all    []*job     // by their start
	last   int        // number of the last job without a name
	closed bool
}

// NewJobs returns no jobs.
func NewJobs() *Jobs { return &Jobs{} }

// Review stops the jobs whose permit allowed says does not hold any more, and says why.
func (s *Jobs) Review(why string, allowed interface {
	Allows(p permission.Permit) bool
},
) {
	for _, j := range s.list() {
		if j.running() && !allowed.Allows(j.permit) {
			j.stop(why)
		}
	}
}

// Forget stops all jobs and forgets them, when the conversation that knows of them is over.
func (s *Jobs) Forget() {
	s.mu.Lock()
	all := s.all
	s.all = nil
	s.mu.Unlock()
	for _, j := range all {
		j.stop("stopped")
	}
}

// Close stops all jobs and returns when nothing of them is left. No more can be started.
func (s *Jobs) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Forget()
	s.following.Wait()
}

// Notices tells, once, of each job that has ended and of whose end the model does not know:
// a line each; "" for none.
func (s *Jobs) Notices() string {
	if s == nil {
		return ""
	}
	var lines []string
	for _, j := range s.list() {
		if text := j.notice(); text != "" {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

// States are how the jobs are, the oldest first. Nil has none.
func (s *Jobs) States() []protocol.Job {
	states := []protocol.Job{}
	if s == nil {
		return states
	}
	for _, j := range s.list() {
		states = append(states, j.data())
	}
	return states
}

// String lists the jobs that run, a line each; "" for none.
func (s *Jobs) String() string {
	if s == nil {
		return ""
	}
	var lines strings.Builder
	for _, j := range s.list() {
		if j.running() {
			lines.WriteString(j.summary())
		}
	}
	return lines.String()
}

func (s *Jobs) list() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// find is the job of that id.
func (s *Jobs) find(id string) (*job, error) {
	all := s.list()
	i := slices.IndexFunc(all, func(j *job) bool { return j.id == id })
	if i >= 0 {
		return all[i], nil
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no job %q, and no other", id)
	}
	var ids []string
	for _, j := range all {
		ids = append(ids, j.id)
	}
	return nil, fmt.Errorf("there is no job %q, only %s", id, strings.Join(ids, ", "))
}

var jobName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`) })

// reserve makes room for a job, which does not run yet and is killed by the end of ctx. The
// caller follows it.
func (s *Jobs) reserve(name string, c command, o Options, permit permission.Permit) (ctx context.Context, _ *job, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, context.Canceled
	}
	running := 0
	for _, j := range s.all {
		if j.running() {
			if running++; running == maxRunning {
				return nil, nil, fmt.Errorf("%d jobs are running already: stop one with job_stop", maxRunning)
			}
			if j.id == name {
				return nil, nil, fmt.Errorf("job %s is running already", name)
			}
		}
	}
	known := func() int { return slices.IndexFunc(s.all, func(j *job) bool { return j.id == name }) }
	for unnamed := name == ""; unnamed; unnamed = known() >= 0 {
		s.last++
		name = fmt.Sprintf("job%d", s.last)
	}
	// An ended job makes room: the one of that name, or else the oldest.
	i := known()
	if i < 0 && len(s.all) == maxJobs {
		i = slices.IndexFunc(s.all, func(j *job) bool { return !j.running() })
	}
	if i >= 0 {
		s.all = slices.Delete(s.all, i, i+1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{
		id: name, command: c.command, permit: permit, options: o, began: time.Now(), cancel: cancel, ran: make(chan struct{}), changed: make(chan struct{}),
		whole: whole{dir: o.OutputDir, most: maxJobFile},
	}
	s.all = append(s.all, j)
	s.following.Add(1)
	return ctx, j, nil
}

// forget takes a job that did not start out of the list.
func (s *Jobs) forget(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *job) bool { return other == j })
}

// Start carries out a call of job_start under these options. The job outlives ctx, which
// bounds the start alone.
func (s *Jobs) Start(ctx context.Context, o Options, c tool.Call) (tool.Result, error) {
	in, name, err := parseStart(c.Input)
	if err != nil {
		return tool.Result{}, err
	}
	life, j, err := s.reserve(name, in, o, c.Permit)
	if err != nil {
		return tool.Result{}, err
	}
	aborted := context.AfterFunc(ctx, j.cancel)
	p, err := newShell(o).start(life, in, true)
	if !aborted() && err == nil {
		p.Close()
		err = ctx.Err()
	}
	if err != nil {
		s.forget(j)
		j.fail()
		s.following.Done()
		return tool.Result{}, err
	}
	j.process = p
	close(j.ran)
	go func() {
		defer s.following.Done()
		j.follow(in)
	}()
	note := ""
	if reason := p.Unconfined(); reason != "" {
		note = fmt.Sprintf("\n[this is not confined to the working directory: %s]", reason)
	}
	if in.stdin != "" {
		if err := j.give(ctx, in.stdin, false); err != nil {
			note += fmt.Sprintf("\n[%v]", err)
		}
	}
	return tool.Result{Text: fmt.Sprintf("[job %s is running: job_output shows its output, job_stop ends it]%s", j.id, note)}, nil
}

// fail is the end of a job that did not start.
func (j *job) fail() {
	j.cancel()
	close(j.ran)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.end("not started")
}

// give writes text to the job's input, and with end closes it.
func (j *job) give(ctx context.Context, text string, end bool) error {
	if j.process == nil {
		return fmt.Errorf("job %s was not started", j.id)
	}
	stdin := j.process.Stdin()
	_ = stdin.SetWriteDeadline(time.Now().Add(inputPatience)) // fails only if it was closed
	stop := context.AfterFunc(ctx, func() { _ = stdin.SetWriteDeadline(time.Now()) })
	n, err := stdin.WriteString(text)
	stop()
	if end {
		stdin.Close()
	}
	if err != nil {
		return fmt.Errorf("job %s has taken %d of %d bytes of its input: %w", j.id, n, len(text), reason(err))
	}
	return nil
}

// checkName says what is wrong with a job's name.
func checkName(member, name string) error {
	if name == "" || jobName().MatchString(name) {
		return nil
	}
	return &strict.Error{Path: member, Problem: fmt.Sprintf("is %.64q, want up to 32 letters, digits, '.', '_' and '-'", name)}
}
