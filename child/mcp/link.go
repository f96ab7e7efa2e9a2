package mcp

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"

	"go.uber.org/zap"
)

// programLink is the link to a server that is a program.
type programLink struct {
	start     Start
	cwd       string
	log       *zap.Logger
	stderr    *stderr
	transport *stdioTransport // nil unless it was started
	kill      context.CancelFunc
}

func (p *programLink) open(s *session, c *client) (transport, error) {
	if p.start == nil {
		return nil, errNoStart
	}
	server := s.server
	dir := p.cwd
	if server.Cwd != "" {
		if dir = server.Cwd; !filepath.IsAbs(dir) {
			dir = filepath.Join(p.cwd, dir)
		}
	}
	spec := Spec{
		Argv: append([]string{server.Command}, server.Args...), Dir: dir, Stderr: p.stderr,
	}
	for _, name := range slices.Sorted(maps.Keys(server.Env)) {
		spec.Env = append(spec.Env, name+"="+server.Env[name])
	}
	// The program is not to be killed when the session ends, but told.
	life, kill := context.WithCancel(context.WithoutCancel(s.ctx))
	p.kill = kill
	hurry := context.AfterFunc(s.ctx, kill)
	process, err := p.start(life, spec)
	hurry()
	if err != nil {
		return nil, err
	}
	p.transport = newStdioTransport(process, c, s.end, p.log)
	context.AfterFunc(s.ctx, p.transport.close)
	return p.transport, nil
}

func (p *programLink) release() string {
	if p.kill != nil {
		defer p.kill() // gives back the context
	}
	if p.transport == nil {
		return ""
	}
	p.transport.close()
	ended := ""
	if err := p.transport.wait(); err != nil {
		ended = err.Error()
	}
	if said := p.stderr.end(); said != "" {
		if ended != "" {
			ended += "; "
		}
		ended += fmt.Sprintf("it said: %s", said)
	}
	return ended
}

// httpLink is the link to a server that is reached by HTTP.
type httpLink struct {
	base      http.RoundTripper
	transport *httpTransport
}

func (a *httpLink) open(s *session, c *client) (transport, error) {
	a.transport = newHTTPTransport(a.base, s.server, c, s.end)
	return a.transport, nil
}

func (a *httpLink) release() string {
	a.transport.wait()
	return ""
}
