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

// servers are the MCP servers of a child. Their tools are those of an Env
// that is opened later.
type servers struct {
	*mcp.Manager
	work *toolenv.Env
}

// newServers reads which servers there are, if any are wanted: a program of another make has its own. The keys have been taken out of the
// environment by then, so that no server can be given one.
func newServers(home, cwd string, images *images.Store, wanted bool, log *zap.Logger) *servers {
	var list []mcp.Server
	if wanted {
		list = mcp.Load(mcp.Files{
			Personal: filepath.Join(home, "mcp.json"), Project: filepath.Join(cwd, ".nexus3", "mcp.json"), Environ: os.Environ(),
		})
	}
	for _, s := range list {
		if s.Problem != "" {
			log.Warn("an MCP server cannot be used", zap.String("server", s.Name), zap.String("error", s.Problem))
		}
	}
	s := &servers{}
	s.Manager = mcp.New(mcp.Options{
		Servers: list,
		Start: mcp.Sandboxed(func() (sandbox.Rules, error) {
			return s.work.Rules("mcp"), nil
		}),
		Environment: s, Images: images, Log: log,
	})
	return s
}

func (s *servers) Permit(server mcp.Server) error { return s.work.MayUse(server.ToolPrefix()) }

func (s *servers) Cwd() string { return s.work.Cwd() }

func (s *servers) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.Manager.Close(ctx)
}
