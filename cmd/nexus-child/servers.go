package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/images"
	"nexus.internal/child/mcp"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/toolenv"
)

// servers are the MCP servers of a child, which are read once the Env is open whose tools they give.
type servers struct {
	*mcp.Manager
	work *toolenv.Env
}

// read reads which servers there are, if any are wanted: a program of another make has its own. Their tools are those of work from then on. The keys have been taken out of the
// environment by then, so that no server can be given one.
func (s *servers) read(home, cwd string, work *toolenv.Env, images *images.Store, wanted bool, log *zap.Logger) {
	s.work = work
	var list []mcp.Server
	if wanted {
		list = mcp.Load(mcp.Files{
			Personal: filepath.Join(home, "mcp.json"), Project: filepath.Join(cwd, ".nexus3", "mcp.json"), Bounds: work, Environ: os.Environ(),
		})
	}
	for _, s := range list {
		if s.Problem != "" {
			log.Warn("an MCP server cannot be used", zap.String("server", s.Name), zap.String("error", s.Problem))
		}
	}
	s.Manager = mcp.New(mcp.Options{
		Servers: list,
		Start: mcp.Sandboxed(func() (sandbox.Rules, error) {
			return s.work.Rules("mcp"), nil
		}),
		Environment: s, Images: images, Log: log,
	})
}

func (s *servers) Permit(server mcp.Server) error { return s.work.MayUse(server.ToolPrefix()) }

func (s *servers) Cwd() string { return s.work.Cwd() }

func (s *servers) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.Manager.Close(ctx)
}
