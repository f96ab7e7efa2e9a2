package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/cmd/internal/greeting"
)

// server is a real nexus serve on a free port with a home of its own. Calls
// are safe for concurrent use.
type server struct {
	cmd    *exec.Cmd
	home   string
	url    string
	key    string
	client *http.Client
	agents atomic.Int64 // names given
}

// startServer runs nexus serve with the extra flags and returns once it
// listens. Its log is thrown away: to read it would take time from the figures,
// and a file of it would be written by the fdatasync of the journals.
func (b *bench) startServer(ctx context.Context, flags ...string) (*server, error) {
	return b.startServerTo(ctx, nil, flags...)
}

// startServerTo is startServer with somebody who reads the log.
func (b *bench) startServerTo(ctx context.Context, log io.Writer, flags ...string) (*server, error) {
	home, err := os.MkdirTemp(b.dir, "home-")
	if err != nil {
		return nil, err
	}
	work := filepath.Join(home, "work") // agents may not use the home itself
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	nexus := filepath.Join(b.bin, "nexus")
	cmd := exec.CommandContext(ctx, nexus, append([]string{"serve", "0", "--home", home}, flags...)...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "NEXUS3_API_KEY=")
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s (is it built? make build): %w", nexus, err)
	}
	s := &server{cmd: cmd, home: home, client: newClient()}
	url, path, err := greeting.Read(out)
	if path == "" {
		return nil, fmt.Errorf("%s did not start, run it to see why: %w", strings.Join(cmd.Args, " "), errors.Join(err, s.stop()))
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.url, s.key = url, strings.TrimSpace(string(key))
	return s, nil
}

// stop ends the server and waits for it.
func (s *server) stop() error {
	s.client.CloseIdleConnections()
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself; Wait tells
	return s.cmd.Wait()
}

// newID names an agent that there was not yet.
func (s *server) newID() string { return "bench-" + strconv.FormatInt(s.agents.Add(1), 10) }

// create makes an agent on the offline model.
func (s *server) create(ctx context.Context, id string) error {
	return s.call(ctx, "/", "create_agent", `{"agent_id":"`+id+`"}`, nil)
}

// destroy ends an agent and forgets it. Its saved session stays.
func (s *server) destroy(ctx context.Context, id string) error {
	return s.call(ctx, "/", "destroy_agent", `{"agent_id":"`+id+`"}`, nil)
}

// send is one turn whose answer is a single word or nearly so.
func (s *server) send(ctx context.Context, id, content string) error {
	return s.call(ctx, "/agent/"+id, "send", `{"content":"`+content+`"}`, nil)
}

// sendNamed is send under a request_id of its own.
func (s *server) sendNamed(ctx context.Context, id, content string) error {
	return s.call(ctx, "/agent/"+id, "send", `{"request_id":"`+rand.Text()+`","content":"`+content+`"}`, nil)
}

// withAgent has take measure something with an agent that is there for no longer.
func (s *server) withAgent(ctx context.Context, id string, take func() (float64, error)) (float64, error) {
	if err := s.create(ctx, id); err != nil {
		return 0, err
	}
	taken, err := take()
	return taken, errors.Join(err, s.destroy(ctx, id))
}

// watched is withAgent for somebody who reads the agent's events.
func (s *server) watched(ctx context.Context, id string, take func(events *bufio.Reader) (float64, error)) (float64, error) {
	return s.withAgent(ctx, id, func() (float64, error) {
		events, done, err := s.subscribe(ctx, id)
		if err != nil {
			return 0, err
		}
		defer done()
		return take(events)
	})
}

// killed kills the process of an agent, and is when.
func (s *server) killed(ctx context.Context, id string) (at time.Time, err error) {
	pid, err := s.pid(ctx, id)
	if err != nil {
		return at, err
	}
	at = time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return at, fmt.Errorf("kill agent %s: %w", id, err)
	}
	return at, nil
}

// pids maps agents to their processes; those that have none are left out.
func (s *server) pids(ctx context.Context) (map[string]int, error) {
	var result api.ListAgentsResult
	if err := s.call(ctx, "/", "list_agents", `{}`, &result); err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, agent := range result.Agents {
		if agent.PID != nil {
			pids[agent.AgentID] = *agent.PID
		}
	}
	return pids, nil
}

// pid is the process of an agent, which must have one.
func (s *server) pid(ctx context.Context, id string) (int, error) {
	pids, err := s.pids(ctx)
	pid, ok := pids[id]
	if err == nil && !ok {
		err = fmt.Errorf("agent %s has no process", id)
	}
	return pid, err
}

// refusedAs says whether err is an error answer of that type (SPEC §6.2).
func refusedAs(err error, typ string) bool {
	answer, ok := errors.AsType[*answerError](err)
	return ok && strings.Contains(answer.Error(), `"`+typ+`"`)
}

// answerError is a JSON-RPC error, as it was written.
type answerError struct{ answer []byte }

func (e *answerError) Error() string { return string(e.answer) }

// call fails on an error answer, with an *answerError. result may be nil.
func (s *server) call(ctx context.Context, path, method, params string, result any) error {
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
	answer, err := post(ctx, s.client, s.url+path, s.key, body)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if strings.Contains(string(answer), `"error":{`) {
		return fmt.Errorf("%s: %w", method, &answerError{answer})
	}
	if result == nil {
		return nil
	}
	var envelope struct {
		Result jsontext.Value `json:"result"`
	}
	if err := json.Unmarshal(answer, &envelope); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return json.Unmarshal(envelope.Result, result)
}

// subscribe opens the agent's event stream, from now on, and returns its lines.
func (s *server) subscribe(ctx context.Context, id string) (*bufio.Reader, func(), error) {
	body, err := ask(ctx, s.client, http.MethodGet, s.url+"/agent/"+id+"/events", s.key, nil)
	if err != nil {
		return nil, nil, err
	}
	return bufio.NewReaderSize(body, 64<<10), func() { body.Close() }, nil
}
