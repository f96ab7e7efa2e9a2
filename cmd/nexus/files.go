package main

import (
	"errors"
	"path/filepath"

	"go.uber.org/zap"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/logfile"
	"nexus.internal/bridge/replay"
	"nexus.internal/cmd/internal/config"
)

// files are what a server keeps open in its home as long as it runs.
type files struct {
	keys       *auth.Keyring
	signatures *replay.Cache
	audit      *logfile.Tiers
	profiles   *profiles // nil without --pprof
}

// openFiles opens them for the server on that port, or none of them. The caller holds
// the home.
func openFiles(cfg *config.Config, port int, o serveOptions, log *zap.Logger) (_ *files, err error) {
	f := &files{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.keys, err = auth.OpenKeyring(cfg.Home.KeyPath(port), cfg.Home.Path("keys.json")); err != nil {
		return nil, err
	}
	if f.signatures, err = replay.Open(filepath.Join(cfg.Home.RunDir(), "signatures")); err != nil {
		return nil, err
	}
	if o.pprof {
		if f.profiles, err = serveProfiles(cfg.Home, log); err != nil {
			return nil, err
		}
	}
	f.audit, err = logfile.OpenTiers(cfg.Home.Path("audit.jsonl"), logfile.Options{Durable: o.durability != "os"})
	return f, err
}

// close closes those that are open.
func (f *files) close() error {
	var errs []error
	if f.profiles != nil {
		f.profiles.close()
	}
	if f.audit != nil {
		errs = append(errs, f.audit.Close())
	}
	if f.signatures != nil {
		errs = append(errs, f.signatures.Close())
	}
	if f.keys != nil {
		errs = append(errs, f.keys.Close())
	}
	return errors.Join(errs...)
}
