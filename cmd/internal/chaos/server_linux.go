package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/greeting"
	"nexus.internal/protocol/proctree"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/textcut"
)

// server is the nexus serve under attack: one process after another on the same
// home. It is safe for concurrent use.
type server struct {
	o       Options
	home    string
	work    string // where agents work
	temp    string // where their programs have temporary files; short, as sockets lie there too
	names   []string
	history *History
	mark    string // see scenario

	died     context.CancelFunc // called once, when there is no server any more that was not to end
	watching sync.WaitGroup     // those that wait for a process

	mu      sync.Mutex    // guards the rest
	up      chan struct{} // closed while it can be called
	number  int           // of processes so far
	process *process      // nil if none runs
	client  *client.Client
	dead    bool                  // died was called
	tags    []proctree.LineageTag // of all processes so far
}

// process is one process of the server.
type process struct {
	cmd   *exec.Cmd
	log   *os.File
	ended chan struct{} // closed once err is there
	err   error
}

// config makes the offline model's window so large that no conversation is
// compacted: what was said must be found.
const config = `{"providers":{"offline":{"type":"offline","models":[{"id":"offline","context_window":1000000000}]}}}`

func newServer(o Options, p Plan, history *History, died context.CancelFunc) (*server, error) {
	disk := o.Disk
	if disk == "" {
		disk = o.Dir
	}
	s := &server{
		o: o, home: filepath.Join(disk, "home"), work: filepath.Join(o.Dir, "work"), temp: filepath.Join(o.Dir, "t"),
		history: history, up: make(chan struct{}), died: died,
		mark: fmt.Sprintf("86400.%09d", time.Now().UnixNano()%1_000_000_000),
	}
	for agent := range p.Agents {
		s.names = append(s.names, p.Name(agent))
	}
	for _, dir := range []string{s.home, s.work, s.temp} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	play, err := scenario(s.mark)
	if err != nil {
		return nil, err
	}
	return s, errors.Join(
		os.WriteFile(filepath.Join(s.home, "config.json"), []byte(config), 0o600),
		os.WriteFile(filepath.Join(o.Dir, "scenario.json"), play, 0o600),
	)
}

// start starts a process and its agents. ctx bounds the start alone. It must be
// called by Run's goroutine: the server dies with its thread.
func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	log, err := os.Create(filepath.Join(s.o.Dir, fmt.Sprintf("server-%d.log", s.number)))
	if err != nil {
		return err
	}
	cmd := exec.Command(s.o.Nexus, "serve", "0", "--home", s.home, "--scenario", filepath.Join(s.o.Dir, "scenario.json"))
	cmd.Dir = s.work
	cmd.Env = append(os.Environ(), "TMPDIR="+s.temp, "NEXUS3_API_KEY=") // what programs leave goes with the rest
	cmd.Stderr = log
	// The terminal's interrupt is for us, and our death is the server's.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	stuck := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stuck()
	o, err := readGreeting(out)
	p := &process{cmd: cmd, log: log, ended: make(chan struct{})}
	s.process = p
	s.watching.Go(func() { s.watch(p) })
	if err == nil {
		s.client, err = client.New(o)
	}
	if err == nil {
		err = s.createAll(ctx)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", strings.Join(cmd.Args, " "), errors.Join(err, s.end(syscall.SIGKILL)))
	}
	if t, ok := tagOf(cmd.Process.Pid, s.home); ok {
		s.tags = append(s.tags, t)
	}
	close(s.up)
	s.history.Add(Record{Kind: ServerUp, Seq: uint64(s.number)})
	return nil
}

// readGreeting reads where a server listens, and its key.
func readGreeting(out io.Reader) (o client.Options, err error) {
	o.Retries = -1 // each try is accounted for
	var path string
	if o.URL, path, err = greeting.Read(out); path == "" {
		return o, errors.Join(errors.New("it does not say where it listens"), err)
	}
	o.Key, err = auth.Read(path)
	return o, err
}

// watch waits for the end of a process, and notes one that nobody asked for.
func (s *server) watch(p *process) {
	p.err = p.cmd.Wait()
	close(p.ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != p {
		return
	}
	s.process = nil
	s.up = make(chan struct{})
	s.client.Close()
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	s.reportDied(fmt.Sprintf("the server ended by itself: %s; %s", how, tail(p.log)))
	_ = p.log.Close() // it was read
}

// reportDied notes that there is no server any more. mu is held.
func (s *server) reportDied(why string) {
	s.dead = true
	s.history.Add(Record{Kind: ServerDied, Text: why})
	s.died()
}

// restart starts the server that was killed. One that does not start is lost.
func (s *server) restart(ctx context.Context) {
	err := s.start(ctx)
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reportDied(fmt.Sprintf("the server did not start again: %v", err))
}

func (s *server) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// crashPattern begins what the runtime says last, which may be long.
var crashPattern = regexp.MustCompile(`(?m)^(panic|fatal error|SIG[A-Z]+): `)

// tail tells the end of a log, or how what the runtime said there begins.
func tail(log *os.File) string {
	const looked, told = 256 << 10, 2 << 10 // bytes
	info, err := log.Stat()
	if err != nil {
		return err.Error()
	}
	end, err := io.ReadAll(io.NewSectionReader(log, max(0, info.Size()-looked), looked))
	if err != nil {
		return err.Error()
	}
	if cry := crashPattern.FindIndex(end); cry != nil {
		end = textcut.Head(end[cry[0]:], told)
	}
	return "the end of " + log.Name() + ":\n    " + strings.ReplaceAll(strings.TrimSpace(string(textcut.Tail(end, told))), "\n", "\n    ")
}

func (s *server) createAll(ctx context.Context) error {
	errs := make([]error, len(s.names))
	fourAtOnce(len(s.names), func(i int) { errs[i] = s.create(ctx, s.client, s.names[i]) })
	return errors.Join(errs...)
}

// fourAtOnce calls do for 0 to n-1, four at a time.
func fourAtOnce(n int, do func(i int)) {
	var working sync.WaitGroup
	free := make(chan struct{}, 4)
	for i := range n {
		working.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			do(i)
		})
	}
	working.Wait()
}

// create makes an agent, or finds that there is one. What it may not do without
// asking, we are asked for.
func (s *server) create(ctx context.Context, c *client.Client, name string) error {
	preset, approvals := rights.Trusted, api.ApprovalsAsk
	p := api.CreateAgentParams{AgentID: &name, Cwd: &s.work, Preset: &preset, Approvals: &approvals}
	if s.o.Kind != "" {
		p.Kind, p.Command = &s.o.Kind, &s.o.Command
	}
	_, err := client.Do(ctx, c, "", api.CreateAgent, p)
	if client.KindOf(err) == api.KindAgentExists {
		return nil
	}
	return err
}

// call waits until there is a server to call.
func (s *server) call(ctx context.Context) (*client.Client, error) {
	for {
		s.mu.Lock()
		up := s.up
		s.mu.Unlock()
		select {
		case <-up:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		s.mu.Lock()
		now, c := s.up, s.client // only now: it is that of a later process
		s.mu.Unlock()
		if now == up {
			return c, nil
		}
	}
}

// pids maps agents to their processes; those that have none are left out.
func (s *server) pids(ctx context.Context) (map[string]int, error) {
	c, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	pids := map[string]int{}
	for _, agent := range listed.Agents {
		if agent.PID != nil {
			pids[agent.AgentID] = *agent.PID
		}
	}
	return pids, err
}

// pid is the process that runs now; 0 for none.
func (s *server) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return 0
	}
	return s.process.cmd.Process.Pid
}

// tagOf is the tag of a server (SPEC §5.5): its records are named after their tags,
// and it bears the last number of its own. ok is false where it has none.
func tagOf(server int, home string) (t proctree.LineageTag, ok bool) {
	own := proctree.LineageOf(server)
	records, _ := os.ReadDir(filepath.Join(home, "run", "trees")) // none without a tag
	for _, record := range records {
		if t, ok = proctree.ParseLineageTag(record.Name()); ok && t.Own() == own {
			return t, true
		}
	}
	return 0, false
}

func (s *server) isLineageTag(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.tags, func(t proctree.LineageTag) bool { return t.Has(number) })
}

func (s *server) isTagged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tags) == s.number
}

// kill ends the server as SIGKILL does, and waits. One that is there no more is
// not killed.
func (s *server) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return &skippedError{why: "it has ended by itself"}
	}
	s.up = make(chan struct{})
	s.history.Add(Record{Kind: ServerDown, Seq: uint64(s.number)})
	return s.end(syscall.SIGKILL)
}

// stop asks the server to end, and waits for at most timeout.
func (s *server) stop(timeout time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	s.up = make(chan struct{})
	process := s.process.cmd.Process
	stuck := time.AfterFunc(timeout, func() { _ = process.Kill() })
	defer stuck.Stop()
	if err := s.end(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end the server: %w", err)
	}
	return nil
}

// end signals the process, which is there, and waits for it. Its death by
// SIGKILL is no error where it was asked for.
func (s *server) end(by syscall.Signal) error {
	p := s.process
	s.process = nil
	if s.client != nil {
		s.client.Close()
	}
	_ = p.cmd.Process.Signal(by) // it may have ended by itself; its status tells
	<-p.ended
	err := p.err
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == by {
		err = nil
	} else if err != nil {
		err = fmt.Errorf("%w; %s", err, tail(p.log))
	}
	return errors.Join(err, p.log.Close())
}
