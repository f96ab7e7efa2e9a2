package mcp

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// maxTarget bounds what get_state tells of a program or an address, in bytes.
const maxTarget = 1 << 10

// maxPause is the longest pause before a server that fails is started again.
const maxPause = time.Minute

var (
	errClosing      = errors.New("the agent is ending")
	errDisconnected = errors.New("it was disconnected")
	errRestarting   = errors.New("the agent's directory or permissions changed")
)

// managedServer holds one server: its session if there is one, and what is known of it.
type managedServer struct {
	manager *Manager
	server  Server
	log     *zap.Logger

	mu       sync.Mutex // guards all below; not held while anything waits
	session  *session   // nil unless it is ready
	attempt  *attempt   // nil unless it is being started
	catalog  catalog    // of the last session
	tools    []tool.Tool
	listed   bool   // there was a session, so catalog says something
	allowed  bool   // a project's server may be started
	consents uint64 // how often somebody said so
	disabled string // why nothing but Connect starts it; "" if it may be started
	refused  string // why it is not permitted; "" if it is
	reason   string // of the last failure; "" after a success
	failures int    // since the last call that went well
	retryAt  time.Time
	restarts uint64 // calls of Manager.Restart
}

// attempt is one start of a server.
type attempt struct {
	ctx     context.Context //nolint:containedctx // of the session that comes of it
	end     context.CancelCauseFunc
	done    chan struct{} // closed when what follows holds
	session *session
	err     error
	waitFor time.Time // by then, a turn begins without it
	consent uint64    // the server's consents as it began
}

// pause is how long a server is left alone after so many failures.
func pause(failures int) time.Duration {
	if failures < 2 {
		return 0
	}
	return min(time.Second<<min(failures-2, 10), maxPause)
}

// blockedBy says why the server is not to be started now. The caller holds mu.
func (ms *managedServer) blockedBy() error {
	switch wait := time.Until(ms.retryAt); {
	case ms.server.Problem != "":
		return errors.New(ms.server.Problem)
	case ms.disabled != "":
		return errors.New(ms.disabled)
	case ms.server.Project && !ms.allowed:
		return fmt.Errorf("the project names it: call %s first", prefixedName(nameKey(ms.server.Name), toolConnect))
	case ms.refused != "":
		return errors.New(ms.refused)
	case wait > 0:
		return fmt.Errorf("%s; it is tried again in %v at the earliest", ms.reason, max(wait.Round(time.Second), time.Second))
	default:
		return nil
	}
}

// lockPermitted asks whether the server may be started, and returns with mu held.
// The answer is one of the settings that hold then: after a restart that comes
// while it is asked, it is asked again.
func (ms *managedServer) lockPermitted() {
	ms.mu.Lock()
	for asked := false; !asked; {
		restarts := ms.restarts
		ms.mu.Unlock()
		refused := ""
		if err := ms.manager.options.Environment.Permit(ms.server); err != nil {
			refused = err.Error()
		}
		ms.mu.Lock()
		if asked = ms.restarts == restarts; asked {
			ms.refused = refused
		}
	}
}

// startAttempt starts the server unless that is being done; the caller holds mu and
// has asked ready.
func (ms *managedServer) startAttempt() (*attempt, error) {
	if ms.attempt != nil {
		return ms.attempt, nil
	}
	a := &attempt{done: make(chan struct{}), waitFor: time.Now().Add(ms.manager.options.Wait), consent: ms.consents}
	a.ctx, a.end = context.WithCancelCause(ms.manager.ctx)
	if !ms.manager.startGoroutine(func() { ms.run(a) }) {
		a.end(errClosing)
		return nil, errClosing
	}
	ms.attempt = a
	return a, nil
}

// run is one session from its start to its end.
func (ms *managedServer) run(a *attempt) {
	defer a.end(nil)
	s, list, err := dial(a.ctx, ms.server, ms.link(), ms.manager.options.Environment.Cwd(), ms.log)
	ms.mu.Lock()
	a.session, a.err = s, err
	ms.attempt = nil
	switch {
	case err == nil:
		ms.session, ms.reason = s, ""
		ms.setCatalog(list)
	case !endedByUs(context.Cause(a.ctx)):
		ms.failed(a, err.Error())
	}
	ms.mu.Unlock()
	close(a.done)
	if err != nil {
		ms.log.Warn("mcp server is not ready", zap.String("reason", err.Error()))
		return
	}
	ms.log.Info("mcp server is ready", zap.Int("tools", len(list.tools)), zap.String("note", list.note))
	s.serve(func() { ms.refresh(s) })
	ms.mu.Lock()
	ms.session = nil
	asked := endedByUs(context.Cause(s.ctx))
	if !asked {
		ms.failed(a, s.reason)
	}
	ms.mu.Unlock()
	close(s.ended)
	ms.log.Info("mcp server has ended", zap.String("reason", s.reason), zap.Bool("asked", asked))
}

func endedByUs(cause error) bool {
	return errors.Is(cause, errClosing) || errors.Is(cause, errDisconnected) || errors.Is(cause, errRestarting)
}

// failed notes a failure. What was allowed for a project's program is over with it: what it
// runs may be another thing by now, as the agent can write to its project. The caller holds mu.
func (ms *managedServer) failed(a *attempt, reason string) {
	if ms.server.Command != "" && a.consent == ms.consents {
		ms.allowed = false
	}
	ms.failures++
	ms.reason = reason
	ms.retryAt = time.Now().Add(pause(ms.failures))
}

// setCatalog takes over what the server has, and reports whether that is new. The
// caller holds mu.
func (ms *managedServer) setCatalog(list catalog) bool {
	if ms.listed && reflect.DeepEqual(ms.catalog, list) {
		return false
	}
	ms.listed, ms.catalog, ms.tools = true, list, ms.makeTools(list)
	return true
}

// refresh looks at the server's lists again.
func (ms *managedServer) refresh(s *session) {
	ctx, cancel := context.WithTimeout(s.ctx, connectTimeout)
	defer cancel()
	list, err := s.list(ctx)
	if err != nil {
		ms.log.Warn("mcp server does not list what it has", zap.String("reason", s.explain(err)))
		return
	}
	ms.mu.Lock()
	changed := ms.setCatalog(list)
	ms.mu.Unlock()
	if changed {
		ms.log.Info("mcp server has other tools", zap.Int("tools", len(list.tools)))
	}
}

// acquire returns a session that was there or is made now.
func (ms *managedServer) acquire(ctx context.Context) (*session, error) {
	ms.mu.Lock()
	s := ms.session
	ms.mu.Unlock()
	switch {
	case s == nil:
	case s.ctx.Err() == nil:
		return s, nil
	default: // of two programs of one server, the first is to be gone
		select {
		case <-s.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	ms.lockPermitted()
	if s := ms.session; s != nil { // somebody else was faster
		ms.mu.Unlock()
		return s, nil
	}
	err := ms.blockedBy()
	var a *attempt
	if err == nil {
		a, err = ms.startAttempt()
	}
	ms.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.session, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// call asks the server for something. A call that cannot have been carried out
// is made once more.
func (ms *managedServer) call(ctx context.Context, do func(context.Context, *client) error) error {
	for again := false; ; again = true {
		s, err := ms.acquire(ctx)
		if err == nil {
			err = s.call(ctx, do)
		}
		lost, isLost := errors.AsType[*lostError](err)
		switch {
		case err == nil:
			ms.mu.Lock()
			ms.failures = 0
			ms.mu.Unlock()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case isLost && lost.notDelivered && !again:
			continue
		case isLost:
			return fmt.Errorf("the MCP server %s was lost during the call, which may have taken effect: %w", ms.server.Name, err)
		default:
			return fmt.Errorf("the MCP server %s: %w", ms.server.Name, err)
		}
	}
}

// release ends the session, if there is one, and waits for that.
func (ms *managedServer) release(ctx context.Context, cause error) error {
	ms.mu.Lock()
	a, s := ms.attempt, ms.session
	ms.mu.Unlock()
	if a != nil {
		a.end(cause)
		select {
		case <-a.done:
			s = a.session
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s == nil {
		return nil
	}
	s.end(cause)
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// status tells how the server gets on.
func (ms *managedServer) status() protocol.MCPServer {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	st := protocol.MCPServer{
		Name: ms.server.Name, Transport: ms.server.transport(), Project: ms.server.Project,
		Tools: uint64(len(ms.catalog.tools)), Note: ms.catalog.note,
	}
	if ms.server.Project {
		st.Target = textcut.Clip(ms.server.target(), maxTarget)
	}
	switch {
	case ms.session != nil:
		st.State = protocol.MCPReady
	case ms.attempt != nil:
		st.State = protocol.MCPConnecting
	case ms.disabled != "":
		st.State, st.Error = protocol.MCPDisabled, ms.blockedBy().Error()
	case ms.server.Problem != "":
		st.State, st.Error = protocol.MCPFailed, ms.server.Problem
	case ms.refused != "":
		st.State, st.Error = protocol.MCPDisabled, ms.blockedBy().Error()
	case ms.reason != "":
		st.State, st.Error = protocol.MCPFailed, ms.reason
	case ms.server.Project && !ms.allowed:
		st.State, st.Note = protocol.MCPIdle, ms.blockedBy().Error()
	default:
		st.State = protocol.MCPIdle
	}
	return st
}

func (ms *managedServer) link() link {
	if ms.server.Command == "" {
		return &httpLink{base: ms.manager.options.HTTP}
	}
	return &programLink{
		start: ms.manager.options.Start, cwd: ms.manager.options.Environment.Cwd(), log: ms.log, stderr: &stderr{server: ms.server, log: ms.log},
	}
}

// prepare starts the server if a turn should do that; nil if there is nothing to
// wait for.
func (ms *managedServer) prepare() *attempt {
	ms.lockPermitted()
	defer ms.mu.Unlock()
	if ms.session != nil || ms.listed && ms.attempt == nil || ms.blockedBy() != nil {
		return nil
	}
	a, err := ms.startAttempt()
	if err != nil {
		return nil
	}
	return a
}

// allow notes that somebody allowed it. The caller holds mu.
func (ms *managedServer) allow() {
	ms.allowed = true
	ms.consents++
}

// connect starts the server because somebody wants it.
func (ms *managedServer) connect(ctx context.Context) error {
	ms.mu.Lock()
	ms.disabled, ms.failures, ms.retryAt = "", 0, time.Time{}
	ms.allow()
	ms.mu.Unlock()
	_, err := ms.acquire(ctx)
	return err
}

// offeredTools are the tools that a model may call now.
func (ms *managedServer) offeredTools() []tool.Tool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	switch {
	case ms.disabled != "", ms.server.Problem != "":
		return nil
	case ms.server.Project && !ms.allowed:
		return []tool.Tool{connectTool{ms, textcut.Line(ms.reason, 300)}}
	case ms.listed:
		return ms.tools
	case ms.refused != "":
		return nil
	case ms.attempt != nil:
		return []tool.Tool{connectTool{ms, "it is still being started"}}
	case ms.reason != "":
		return []tool.Tool{connectTool{ms, textcut.Line(ms.reason, 300)}}
	default: // the next turn starts it
		return nil
	}
}
