package main

import (
	"errors"
	"path/filepath"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/limit"
	"nexus.internal/bridge/logfile"
	"nexus.internal/cmd/internal/config"
)

// files are what a server keeps open in its home as long as it runs.
type files struct {
	keys       *auth.Keyring
	signatures *limit.Seen
	audit      *logfile.Log
}

// openFiles opens them for the server on that port, or none of them. The caller holds
// the home. With durable, lines of the audit log are brought to the disk.
func openFiles(cfg *config.Config, port int, durable bool) (_ *files, err error) {
	f := &files{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.keys, err = auth.OpenKeyring(cfg.Home.KeyPath(port), cfg.Home.Path("keys.json")); err != nil {
		return nil, err
	}
	if f.signatures, err = limit.OpenSeen(filepath.Join(cfg.Home.RunDir(), "signatures")); err != nil {
		return nil, err
	}
	f.audit, err = logfile.Open(cfg.Home.Path("audit.jsonl"), logfile.Options{Durable: durable})
	return f, err
}

// close closes those that are open.
func (f *files) close() error {
	var errs []error
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
