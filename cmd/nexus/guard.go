package main

import (
	"path/filepath"

	"go.uber.org/zap"

	"nexus.internal/cmd/internal/config"
	"nexus.internal/supervisor/proc"
)

// newGuard makes the guard of the server's processes (SPEC §5.5) and says once
// what it has on this machine. It is made before the first of them starts, and
// to be closed when the last has ended.
func newGuard(cfg *config.Config, log *zap.Logger) (*proc.Guard, error) {
	guard, err := proc.NewGuard(proc.GuardOptions{Dir: filepath.Join(cfg.Home.RunDir(), "trees"), Log: log.Named("proc")})
	if err != nil {
		return nil, err
	}
	log.Info("processes are guarded", zap.Stringer("means", guard.Mechanisms()))
	return guard, nil
}
