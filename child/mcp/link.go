package mcp

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
)

// farewell is how long the answer to the end of an HTTP session is waited for.
const farewell = 300 * time.Millisecond

// program is the link to a server that is a program.
type program struct {
	start  Start
	cwd    string
	log    *zap.Logger
	stderr *stderr
	pipe   *pipe // nil unless it was started
	kill   context.CancelFunc
}

func (p *program) open(s *session) (sdk.Transport, error) {
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
	p.pipe = newPipe(process, &gate{end: s.end}, p.log)
	context.AfterFunc(s.ctx, p.pipe.shut)
	return p.pipe, nil
}

func (p *program) release() string {
	if p.kill != nil {
		defer p.kill() // gives back the context
	}
	if p.pipe == nil {
		return ""
	}
	p.pipe.shut()
	ended := ""
	if err := p.pipe.wait(); err != nil {
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

// address is the link to a server that is reached by HTTP.
type address struct {
	base http.RoundTripper
	web  *web
}

func (a *address) open(s *session) (sdk.Transport, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	context.AfterFunc(s.ctx, func() { time.AfterFunc(farewell, cancel) })
	a.web = &web{
		base: a.base, headers: s.server.Headers, life: life, patience: s.server.Timeout + pingPatience,
		gate: &gate{end: s.end},
	}
	return &sdk.StreamableClientTransport{Endpoint: s.server.URL, HTTPClient: a.web.client(), MaxEventSize: maxLine}, nil
}

func (a *address) release() string {
	a.web.farewell.Wait()
	return ""
}
