package mcp

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
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
	errClosing = errors.New("the agent is ending")
	errHeld    = errors.New("it was disconnected")
	errMoved   = errors.New("the agent's directory or permissions changed")
)

// host holds one server: its session if there is one, and what is known of it.
type host struct {
	m      *Manager
	server Server
	log    *zap.Logger

	mu       sync.Mutex // guards all below; not held while anything waits
	session  *session   // nil unless it is ready
	attempt  *attempt   // nil unless it is being started
	catalog  catalog    // of the last session
	tools    []tool.Tool
	known    bool   // there was a session, so catalog says something
	allowed  bool   // a project's server may be started
	held     string // why nothing but Connect starts it; "" if it may be started
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
}

// pause is how long a server is left alone after so many failures.
func pause(failures int) time.Duration {
	if failures < 2 {
		return 0
	}
	return min(time.Second<<min(failures-2, 10), maxPause)
}

// ready says why the server is not to be started now. The caller holds mu.
func (h *host) ready() error {
	switch wait := time.Until(h.retryAt); {
	case h.server.Problem != "":
		return errors.New(h.server.Problem)
	case h.held != "":
		return errors.New(h.held)
	case h.server.Project && !h.allowed:
		return fmt.Errorf("the project names it: call %s first", ownName(key(h.server.Name), toolConnect))
	case h.refused != "":
		return errors.New(h.refused)
	case wait > 0:
		return fmt.Errorf("%s; it is tried again in %v at the earliest", h.reason, wait.Round(time.Second))
	default:
		return nil
	}
}

// lockPermitted asks whether the server may be started, and returns with mu held.
// The answer is one of the settings that hold then: after a restart that comes
// while it is asked, it is asked again.
func (h *host) lockPermitted() {
	h.mu.Lock()
	for asked := false; !asked; {
		restarts := h.restarts
		h.mu.Unlock()
		refused := ""
		if err := h.m.options.Permit(h.server); err != nil {
			refused = err.Error()
		}
		h.mu.Lock()
		if asked = h.restarts == restarts; asked {
			h.refused = refused
		}
	}
}

// begin starts the server unless that is being done; the caller holds mu and
// has asked ready.
func (h *host) begin() (*attempt, error) {
	if h.attempt != nil {
		return h.attempt, nil
	}
	a := &attempt{done: make(chan struct{}), waitFor: time.Now().Add(h.m.options.Wait)}
	a.ctx, a.end = context.WithCancelCause(h.m.ctx)
	if !h.m.spawn(func() { h.run(a) }) {
		a.end(errClosing)
		return nil, errClosing
	}
	h.attempt = a
	return a, nil
}

// run is one session from its start to its end.
func (h *host) run(a *attempt) {
	defer a.end(nil)
	s, list, err := dial(a.ctx, h.server, h.link(), h.m.options.Cwd())
	h.mu.Lock()
	a.session, a.err = s, err
	h.attempt = nil
	changed := false
	switch {
	case err == nil:
		h.session, h.reason = s, ""
		changed = h.learn(list)
	case !isOurs(context.Cause(a.ctx)):
		h.failed(err.Error())
	}
	h.mu.Unlock()
	close(a.done)
	if err != nil {
		h.log.Warn("mcp server is not ready", zap.String("reason", err.Error()))
		return
	}
	h.log.Info("mcp server is ready", zap.Int("tools", len(list.tools)), zap.String("note", list.note))
	if changed {
		h.m.options.OnChange()
	}
	s.keep(func() { h.refresh(s) })
	h.mu.Lock()
	h.session = nil
	asked := isOurs(context.Cause(s.ctx))
	if !asked {
		h.failed(s.reason)
	}
	h.mu.Unlock()
	close(s.over)
	h.log.Info("mcp server has ended", zap.String("reason", s.reason), zap.Bool("asked", asked))
}

// isOurs reports whether a session ended because we wanted it to.
func isOurs(cause error) bool {
	return errors.Is(cause, errClosing) || errors.Is(cause, errHeld) || errors.Is(cause, errMoved)
}

// failed notes a failure. The caller holds mu.
func (h *host) failed(reason string) {
	h.failures++
	h.reason = reason
	h.retryAt = time.Now().Add(pause(h.failures))
}

// learn takes over what the server has, and reports whether that is new. The
// caller holds mu.
func (h *host) learn(list catalog) bool {
	if h.known && reflect.DeepEqual(h.catalog, list) {
		return false
	}
	h.known, h.catalog, h.tools = true, list, h.makeTools(list)
	return true
}

// refresh looks at the server's lists again.
func (h *host) refresh(s *session) {
	ctx, cancel := context.WithTimeout(s.ctx, connectPatience)
	defer cancel()
	list, err := s.list(ctx)
	if err != nil {
		h.log.Warn("mcp server does not list what it has", zap.String("reason", s.explain(err)))
		return
	}
	h.mu.Lock()
	changed := h.learn(list)
	h.mu.Unlock()
	if changed {
		h.m.options.OnChange()
	}
}

// acquire returns a session that was there or is made now.
func (h *host) acquire(ctx context.Context) (*session, error) {
	h.mu.Lock()
	s := h.session
	h.mu.Unlock()
	switch {
	case s == nil:
	case s.ctx.Err() == nil:
		return s, nil
	default: // of two programs of one server, the first is to be gone
		select {
		case <-s.over:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	h.lockPermitted()
	if s := h.session; s != nil { // somebody else was faster
		h.mu.Unlock()
		return s, nil
	}
	err := h.ready()
	var a *attempt
	if err == nil {
		a, err = h.begin()
	}
	h.mu.Unlock()
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
func (h *host) call(ctx context.Context, do func(context.Context, *sdk.ClientSession) error) error {
	for again := false; ; again = true {
		s, err := h.acquire(ctx)
		if err == nil {
			err = s.call(ctx, do)
		}
		lost, isLost := errors.AsType[*lostError](err)
		switch {
		case err == nil:
			h.mu.Lock()
			h.failures = 0
			h.mu.Unlock()
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case isLost && lost.unheard && !again:
			continue
		case isLost:
			return fmt.Errorf("the MCP server %s was lost during the call, which may have taken effect: %w", h.server.Name, err)
		default:
			return fmt.Errorf("the MCP server %s: %w", h.server.Name, err)
		}
	}
}

// release ends the session, if there is one, and waits for that.
func (h *host) release(ctx context.Context, cause error) error {
	h.mu.Lock()
	a, s := h.attempt, h.session
	h.mu.Unlock()
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
	case <-s.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// status tells how the server gets on.
func (h *host) status() protocol.MCPServer {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := protocol.MCPServer{
		Name: h.server.Name, Transport: h.server.transport(), Project: h.server.Project,
		Tools: uint64(len(h.catalog.tools)), Note: h.catalog.note,
	}
	if h.server.Project {
		st.Target = textcut.Clip(h.server.target(), maxTarget)
	}
	switch {
	case h.session != nil:
		st.State = protocol.MCPReady
	case h.attempt != nil:
		st.State = protocol.MCPConnecting
	case h.held != "":
		st.State, st.Error = protocol.MCPDisabled, h.ready().Error()
	case h.server.Problem != "":
		st.State, st.Error = protocol.MCPFailed, h.server.Problem
	case h.refused != "":
		st.State, st.Error = protocol.MCPDisabled, h.ready().Error()
	case h.reason != "":
		st.State, st.Error = protocol.MCPFailed, h.reason
	case h.server.Project && !h.allowed:
		st.State, st.Note = protocol.MCPIdle, h.ready().Error()
	default:
		st.State = protocol.MCPIdle
	}
	return st
}

// link makes what a session of this server lies on.
func (h *host) link() link {
	if h.server.Command == "" {
		return &address{base: h.m.options.HTTP}
	}
	return &program{
		start: h.m.options.Start, cwd: h.m.options.Cwd(), log: h.log, stderr: &stderr{server: h.server, log: h.log},
	}
}

// prepare starts the server if a turn should do that; nil if there is nothing to
// wait for.
func (h *host) prepare() *attempt {
	h.lockPermitted()
	defer h.mu.Unlock()
	if h.session != nil || h.known && h.attempt == nil || h.ready() != nil {
		return nil
	}
	a, err := h.begin()
	if err != nil {
		return nil
	}
	return a
}

// connect starts the server because somebody wants it.
func (h *host) connect(ctx context.Context) error {
	h.mu.Lock()
	was := h.held != ""
	h.held, h.allowed, h.failures, h.retryAt = "", true, 0, time.Time{}
	h.mu.Unlock()
	if _, err := h.acquire(ctx); err != nil {
		return err
	}
	if was {
		h.m.options.OnChange()
	}
	return nil
}

// offered are the tools that a model may call now.
func (h *host) offered() []tool.Tool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.held != "", h.server.Problem != "":
		return nil
	case h.server.Project && !h.allowed:
		return []tool.Tool{connector{host: h}}
	case h.known:
		return h.tools
	case h.refused != "":
		return nil
	case h.attempt != nil:
		return []tool.Tool{connector{h, "it is still being started"}}
	case h.reason != "":
		return []tool.Tool{connector{h, textcut.Line(h.reason, 300)}}
	default: // the next turn starts it
		return nil
	}
}
