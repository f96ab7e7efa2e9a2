package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/logfile"
	"nexus.internal/bridge/replay"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/cmd/internal/sessionlog"
	"nexus.internal/protocol"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
)

// files are what a server keeps open in its home as long as it runs.
type files struct {
	keys       *auth.Keyring
	signatures *replay.Cache
	audit      *logfile.Tiers
	profiles   *socket             // nil without --pprof
	logs       *sessionlog.Archive // nil if sessions are not logged
}

// openFiles opens them for the server on that port, or none of them; but for the logs. The caller holds
// the home.
func openFiles(cfg *config.Config, port int, o serveOptions, machines *membership, logs *sessionlog.Archive, log *zap.Logger) (_ *files, err error) {
	f := &files{logs: logs}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if f.keys, err = machines.openKeys(cfg, port); err != nil {
		return nil, err
	}
	if f.signatures, err = replay.Open(filepath.Join(cfg.Home.RunDir(), "signatures"), machines.agreed()); err != nil {
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

// close closes those that are open, but for the logs.
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

// claimHome claims the home for the server on that port. The logs of sessions, nil if none are logged, are opened
// before what temporary agents of a killed server left is removed. The home then says its format, which
// version of nexus wrote.
func claimHome(ctx context.Context, cfg *config.Config, port int, version string, o serveOptions, log *zap.Logger) (held *cli.HomeLock, logs *sessionlog.Archive, err error) {
	held, err = cli.LockHome(string(cfg.Home), port, func() (err error) {
		logs, err = openLogs(ctx, cfg, o, log)
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(err, closeLogs(logs))
	}
	if err := homeformat.Mark(string(cfg.Home), version); err != nil { // on a full disk: the next start does it
		log.Warn("the home is used without a note of its format", zap.Error(err))
	}
	return held, logs, nil
}

func closeLogs(logs *sessionlog.Archive) error {
	if logs == nil {
		return nil
	}
	return logs.Close()
}

// checkLogs refuses the log and the logs of sessions that could not be opened, where there is no home yet: they are opened once there is
// one, and a start that is refused leaves none.
func (o serveOptions) checkLogs(cfg *config.Config) error {
	if _, err := os.Lstat(string(cfg.Home)); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := o.log.check(cfg.Home); err != nil {
		return err
	}
	logs := o.sessionLogs(cfg)
	if !*logs.Sessions {
		return nil
	}
	dir, err := filepath.Abs(logs.Dir)
	if err != nil {
		return fmt.Errorf("open the session logs: %w", err)
	}
	dir = safefile.ThroughNoLink(dir)
	if _, above := safefile.Below(dir, string(cfg.Home)); above || dir == cfg.Home.RunDir() {
		return fmt.Errorf("open the session logs: %s has other files, of the home: name a directory that is empty, or not there yet", dir)
	}
	return sessionlog.Check(dir)
}

// openLogs opens the logs of sessions, and adds to them what a killed server of the home did not log; nil if
// sessions are not logged.
func openLogs(ctx context.Context, cfg *config.Config, o serveOptions, log *zap.Logger) (*sessionlog.Archive, error) {
	logs := o.sessionLogs(cfg)
	if !*logs.Sessions {
		return nil, nil
	}
	archive, err := sessionlog.Create(logs.Dir)
	if err != nil {
		return nil, err
	}
	home := string(cfg.Home)
	if err := archive.CatchUp(ctx, home, sessions.New(home, nil)); err != nil { // on a full disk, say
		log.Warn("what a killed server did not log may be missing in the session logs", zap.Error(err))
	}
	return archive, nil
}

// sessionLogs says whether and where sessions are logged, by the configuration and the flags: all but KeepDays is there.
func (o serveOptions) sessionLogs(cfg *config.Config) config.Logs {
	logs := cfg.Logs
	logs.Dir = cmp.Or(o.logDir, cfg.SessionLogsDir())
	logs.Events = logs.Events || o.rawLog
	logs.Sessions = new(o.logDir != "" || o.rawLog || protocol.ValueOr(logs.Sessions, o.logSessions))
	return logs
}

// privateLogs is the directory of the logs of sessions, where it is named: it may have those of earlier servers even if nothing is logged now. The home
// has the other one.
func (o serveOptions) privateLogs(cfg *config.Config) []string {
	dir, err := filepath.Abs(cmp.Or(o.logDir, cfg.Logs.Dir))
	if err != nil || o.logDir == "" && cfg.Logs.Dir == "" {
		return nil
	}
	return []string{dir}
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
