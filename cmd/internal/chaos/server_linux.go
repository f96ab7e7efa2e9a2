package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
)

// server is the nexus serve under attack: one process after another on the same
// home. It is safe for concurrent use.
type server struct {
	o       Options
	home    string
	work    string // where agents work
	names   []string
	history *History
	mark    string // see scenario

	mu     sync.Mutex    // guards the rest
	up     chan struct{} // closed while it can be called
	number int           // of processes so far
	cmd    *exec.Cmd
	log    *os.File
	client *client.Client
}

// config makes the offline model's window so large that no conversation is
// compacted: what was said must be found.
const config = `{"providers":{"offline":{"type":"offline","models":[{"id":"offline","context_window":1000000000}]}}}`

func newServer(o Options, p Plan, history *History) (*server, error) {
	disk := o.Disk
	if disk == "" {
		disk = o.Dir
	}
	s := &server{
		o: o, home: filepath.Join(disk, "home"), work: filepath.Join(o.Dir, "work"), history: history, up: make(chan struct{}),
		mark: fmt.Sprintf("86400.%09d", time.Now().UnixNano()%1_000_000_000),
	}
	for agent := range p.Agents {
		s.names = append(s.names, p.Name(agent))
	}
	for _, dir := range []string{s.home, s.work} {
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
	s.cmd, s.log = cmd, log
	stuck := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stuck()
	o := client.Options{Retries: -1} // each try is accounted for
	lines := bufio.NewScanner(out)
	for o.Key.IsZero() && lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "nexus listening on "); ok {
			o.URL = url
		}
		if path, ok := strings.CutPrefix(lines.Text(), "key file: "); ok {
			if o.Key, err = auth.Read(path); err != nil {
				return errors.Join(err, s.end(syscall.SIGKILL))
			}
		}
	}
	if o.Key.IsZero() {
		return fmt.Errorf("%s did not start; its log is %s: %w", strings.Join(cmd.Args, " "), log.Name(), s.end(syscall.SIGKILL))
	}
	if s.client, err = client.New(o); err != nil {
		return errors.Join(err, s.end(syscall.SIGKILL))
	}
	if err := s.createAll(ctx); err != nil {
		return errors.Join(err, s.end(syscall.SIGKILL))
	}
	close(s.up)
	s.history.Add(Record{What: ServerUp, Seq: uint64(s.number)})
	return nil
}

// createAll makes the agents, four at a time.
func (s *server) createAll(ctx context.Context) error {
	var making sync.WaitGroup
	errs := make([]error, len(s.names))
	free := make(chan struct{}, 4)
	for i, name := range s.names {
		making.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			errs[i] = s.create(ctx, s.client, name)
		})
	}
	making.Wait()
	return errors.Join(errs...)
}

// create makes an agent, or finds that there is one. What it may not do without
// asking, we are asked for.
func (s *server) create(ctx context.Context, c *client.Client, name string) error {
	preset, approvals := api.PresetTrusted, api.ApprovalsAsk
	_, err := c.CreateAgent(ctx, api.CreateAgentParams{AgentID: &name, Cwd: &s.work, Preset: &preset, Approvals: &approvals})
	if kind(err) == "AGENT_EXISTS" {
		return nil
	}
	return err
}

// call waits until there is a server to call.
func (s *server) call(ctx context.Context) (*client.Client, error) {
	for {
		s.mu.Lock()
		up, c := s.up, s.client
		s.mu.Unlock()
		select {
		case <-up:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// pid is the process that runs now.
func (s *server) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Pid
}

// kill ends the server as SIGKILL does, and waits.
func (s *server) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = make(chan struct{})
	s.history.Add(Record{What: ServerDown, Seq: uint64(s.number)})
	return s.end(syscall.SIGKILL)
}

// stop asks the server to end, and waits for at most patience.
func (s *server) stop(patience time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	s.up = make(chan struct{})
	stuck := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer stuck.Stop()
	if err := s.end(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end the server: %w", err)
	}
	return nil
}

// end signals the process, which is there, and waits for it. Its death by
// SIGKILL is no error where it was asked for.
func (s *server) end(by syscall.Signal) error {
	cmd := s.cmd
	s.cmd = nil
	if s.client != nil {
		s.client.Close()
	}
	_ = cmd.Process.Signal(by) // it may have ended by itself; Wait tells
	err := cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == by {
		err = nil
	}
	return errors.Join(err, s.log.Close())
}

// kind is the type of an error that the server gave, "" for any other.
func kind(err error) string {
	if e, ok := errors.AsType[*client.RPCError](err); ok {
		return e.Data.Type
	}
	return ""
}
