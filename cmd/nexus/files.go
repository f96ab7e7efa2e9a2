package main

import (
	"errors"
	"path/filepath"

	"go.uber.org/zap"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/logfile"
	"nexus.internal/bridge/replay"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/cmd/internal/sessionlog"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
)

// files are what a server keeps open in its home as long as it runs.
type files struct {
	keys       *auth.Keyring
	signatures *replay.Cache
	audit      *logfile.Tiers
	profiles   *profiles           // nil without --pprof
	logs       *sessionlog.Archive // nil if sessions are not logged
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
	if logs := o.sessionLogs(cfg); logs.Sessions {
		if f.logs, err = sessionlog.Create(logs.Dir); err != nil {
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
	if f.logs != nil {
		errs = append(errs, f.logs.Close())
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

// sessionLogs says whether and where sessions are logged, by the configuration and the flags.
func (o serveOptions) sessionLogs(cfg *config.Config) config.Logs {
	logs := cfg.Logs
	logs.Dir = cfg.SessionLogsDir()
	if o.logDir != "" {
		logs.Sessions, logs.Dir = true, o.logDir
	}
	if o.rawLog {
		logs.Sessions, logs.Events = true, true
	}
	return logs
}

// recorder is what logs sessions; nil if nothing does.
func (f *files) recorder(cfg *config.Config, o serveOptions, sup *supervisor.Supervisor, kept *store.Local, catalogue *sessions.Catalogue, log *zap.Logger) (*sessionlog.Recorder, error) {
	if f.logs == nil {
		return nil, nil
	}
	logs := o.sessionLogs(cfg)
	return sessionlog.NewRecorder(f.logs, sessionlog.Options{
		Home: string(cfg.Home), Supervisor: sup, Sessions: catalogue, History: kept, Log: log.Named("sessionlog"), Events: logs.Events, KeepDays: logs.Days(),
	})
}
