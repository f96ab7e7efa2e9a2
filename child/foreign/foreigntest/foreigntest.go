//go:build linux

// Package foreigntest runs agents of other makes in tests of their drivers, in a session that is
// saved, with a parent that answers what it is told to. TestMain of the driver calls Main.
//
//	a := foreigntest.Open(t, foreigntest.Options{Driver: acp.Driver{}, Command: foreigntest.Fake("acp", "waits")})
//	result, said := a.Turn(t.Context(), "1", "hello")
//
// It is for tests alone. The programs are real, and not confined.
package foreigntest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"nexus.internal/child/conversation"
	"nexus.internal/child/foreign"
	"nexus.internal/child/journal"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// fakeagent is the program that misbehaves on request, as far as Main has built it.
var fakeagent string

// Main runs the tests of a package with fakeagent, and looks for goroutines that are left.
func Main(m *testing.M) {
	if err := sandbox.Adopt(); err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "fakeagent-")
	if err != nil {
		panic(err)
	}
	fakeagent = filepath.Join(dir, "fakeagent")
	if err := build(fakeagent); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func build(path string) error {
	p, err := sandbox.Start(context.Background(), sandbox.Spec{
		Argv: []string{"go", "build", "-buildvcs=false", "-o", path, "nexus.internal/fixtures/fakeagent"}, Env: os.Environ(),
		Rules: sandbox.Rules{Confinement: sandbox.Unconfined, Limits: sandbox.Limits{CPU: -1}},
	})
	if err != nil {
		return err
	}
	defer p.Close()
	said, _ := io.ReadAll(p.Stdout())
	if exit := p.Wait(); exit.Code != 0 {
		return fmt.Errorf("build fakeagent: exit status %d\n%s", exit.Code, said)
	}
	return nil
}

// Fake is the command of fakeagent at a protocol, with a fault.
func Fake(protocol, fault string, more ...string) []string {
	return append([]string{fakeagent, protocol, "--fault", fault}, more...)
}

// starter starts programs unconfined.
type starter struct{}

func (starter) Start(ctx context.Context, s sandbox.Spec) (*sandbox.Process, error) {
	return sandbox.Start(ctx, s)
}

// Client answers what a program asks. The zero value denies everything and has no files.
type Client struct {
	// Answer is the answer to each question; the zero value waits until nobody wants it any more.
	Answer protocol.PermissionResponse
	// Questions gets each question, if there is room.
	Questions chan foreign.Question

	mu sync.Mutex // guards Files
	// Files are what there is, by path.
	Files map[string]string
}

// Permit implements [foreign.Client].
func (c *Client) Permit(ctx context.Context, q foreign.Question) (protocol.PermissionResponse, error) {
	select {
	case c.Questions <- q:
	default:
	}
	if c.Answer.Decision == "" {
		<-ctx.Done()
		return protocol.PermissionResponse{}, ctx.Err()
	}
	return c.Answer, nil
}

// ReadFile implements [foreign.Client].
func (c *Client) ReadFile(_ context.Context, _, path string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text, ok := c.Files[path]; ok {
		return text, nil
	}
	return "", errors.New("there is no " + path)
}

// WriteFile implements [foreign.Client].
func (c *Client) WriteFile(_ context.Context, _, path, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Files == nil {
		return errors.New("nothing may be written")
	}
	c.Files[path] = text
	return nil
}

// Options are how an agent is opened.
type Options struct {
	Driver        foreign.Driver
	Command       []string
	Client        *Client // nil: the zero value
	Model, System string
	// Resume is the program's id of the conversation to go on with, Began that it has messages.
	Resume string
	Began  bool
	// Timeout is for the start; 0 is none.
	Timeout time.Duration
}

// Agent is an agent whose turns are saved.
type Agent struct {
	*foreign.Agent
	Journal      *journal.Journal
	Conversation *conversation.Conversation
}

// TryOpen opens an agent until the end of the test. An error is that of its start.
func TryOpen(t *testing.T, o Options) (*Agent, error) {
	t.Helper()
	dir := t.TempDir()
	j, state, err := journal.Open(journal.Options{Dir: filepath.Join(dir, "sessions"), Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if o.Client == nil {
		o.Client = &Client{}
	}
	var saved *transcript.ProgramSession
	if o.Resume != "" {
		saved = &transcript.ProgramSession{Of: state.SessionID, ID: o.Resume}
	}
	ctx := t.Context()
	if o.Timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, o.Timeout)
		defer cancel()
		ctx = limited
	}
	agent, err := foreign.Open(ctx, foreign.Options{
		Program: protocol.AgentProgram{Kind: "test", Protocol: "test", Command: o.Command}, Driver: o.Driver, Start: starter{}, Cwd: dir,
		Client: o.Client, Model: o.Model, System: o.System, SessionID: state.SessionID, Saved: saved, Began: o.Began, Stderr: os.Stderr,
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = agent.Close() })
	return &Agent{agent, j, conversation.New(nil, conversation.Preamble{})}, nil
}

// Open is TryOpen of an agent that starts.
func Open(t *testing.T, o Options) *Agent {
	t.Helper()
	a, err := TryOpen(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Turn runs a turn to its end.
func (a *Agent) Turn(ctx context.Context, id, message string) (turn.Result, *Events) {
	e := &Events{}
	return a.TurnTo(ctx, id, message, e), e
}

// TurnTo is Turn that tells e.
func (a *Agent) TurnTo(ctx context.Context, id, message string, e *Events) turn.Result {
	return a.Run(ctx, foreign.Turn{
		Input: turn.Input{ID: id, Message: message}, Conversation: a.Conversation, Journal: a.Journal, Listener: e,
	})
}

// Cancelled runs a turn, and cancels it once its text holds mark.
func (a *Agent) Cancelled(ctx context.Context, id, message, mark string) (turn.Result, *Events) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := &Events{Mark: mark, Seen: cancel}
	return a.TurnTo(ctx, id, message, e), e
}

// Events are what a turn told. They are read once it has ended.
type Events struct {
	All []protocol.AssistantEvent
	// Seen, unless nil, is called once the text holds Mark.
	Mark string
	Seen context.CancelFunc
}

// Emit implements [turn.Listener].
func (e *Events) Emit(one protocol.AssistantEvent) {
	e.All = append(e.All, one)
	if e.Seen != nil && strings.Contains(e.Text(), e.Mark) {
		e.Seen()
		e.Seen = nil
	}
}

// Compacted implements [turn.Listener].
func (*Events) Compacted() {}

// Text is all text of the turn.
func (e *Events) Text() string {
	var b strings.Builder
	for _, one := range e.All {
		if delta, ok := one.(protocol.TextDelta); ok {
			b.WriteString(delta.Delta)
		}
	}
	return b.String()
}

// Only are the events of a type, in their order.
func Only[T protocol.AssistantEvent](e *Events) (some []T) {
	for _, one := range e.All {
		if typed, ok := one.(T); ok {
			some = append(some, typed)
		}
	}
	return some
}

// Children are the processes that descend from this one, reapers included.
func Children(t *testing.T) (pids []string) {
	t.Helper()
	parents := map[string]string{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		stat, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue // no process, or gone
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 {
			parents[entry.Name()] = fields[1]
		}
	}
	for pid := range parents {
		for up := parents[pid]; up != ""; up = parents[up] {
			if up == fmt.Sprint(os.Getpid()) {
				pids = append(pids, pid)
				break
			}
		}
	}
	slices.Sort(pids)
	return pids
}
