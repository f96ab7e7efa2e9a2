package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"nexus.internal/bridge/logfile"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/cmd/internal/logsink"
	"nexus.internal/cmd/internal/telemetry"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/tracing"
)

// logOptions are the flags about the server's log.
type logOptions struct {
	level  logsink.Level
	format logsink.Format
	file   string // "" is stderr
}

func (o *logOptions) flags(set *pflag.FlagSet) {
	set.Var(&o.level, "log-level", "lowest level of logged lines: debug, info, warn or error")
	set.Var(&o.format, "log-format", "format of the log: auto (text on a terminal, else json), text or json")
	set.StringVar(&o.file, "log-file", "", "write the log to `FILE`, which becomes FILE.1 at 8 MiB; three older ones are kept (default: stderr)")
}

func (o *logOptions) childLevel() string {
	if o.level == (logsink.Level{}) {
		return ""
	}
	return o.level.String()
}

// open returns the log and what it writes to, which is to be flushed at the end.
func (o *logOptions) open(stderr io.Writer, home config.Home) (logsink.Sink, *zap.Logger, error) {
	if o.file != "" {
		if err := o.besideTheHome(home); err != nil {
			return logsink.Sink{}, nil, err
		}
		file, err := logfile.Open(o.file, logfile.Options{Opened: alsoCrash})
		if err != nil {
			return logsink.Sink{}, nil, err
		}
		stderr = fileLog{file}
	}
	lines := logsink.New(stderr, o.format)
	return lines, lines.Logger(o.level), nil
}

// check reports why open would refuse the file of the log where there is no home yet. It makes nothing.
func (o *logOptions) check(home config.Home) error {
	file, err := filepath.Abs(o.file)
	if o.file == "" || err != nil {
		return err
	}
	file = safefile.ThroughNoLink(file)
	if _, above := safefile.Below(file, string(home)); above || os.IsPathSeparator(o.file[len(o.file)-1]) {
		return fmt.Errorf("open the log: %s is a directory", o.file)
	}
	switch dir := filepath.Dir(file); {
	case dir == home.LogsDir():
		return nil
	case dir != string(home) && dir != home.SessionsDir() && dir != home.RunDir(): // which are made with the home
		return logfile.Check(file)
	case filepath.Ext(file) != ".log":
		return o.inTheHome()
	}
	return nil
}

// besideTheHome refuses a file in the place of one of the home's, which would have lines of the log in it.
func (o *logOptions) besideTheHome(home config.Home) error {
	dir, err := filepath.Abs(filepath.Dir(o.file))
	if err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil || !home.Owns(dir) || filepath.Ext(o.file) == ".log" {
		return nil
	}
	if logs, err := filepath.EvalSymlinks(home.LogsDir()); err == nil {
		if _, in := safefile.Below(logs, real); in || real == logs {
			return nil
		}
	}
	return o.inTheHome()
}

func (o *logOptions) inTheHome() error {
	return cli.Usage("--log-file %s: in the home, which has other files, a log is in logs/, or its name ends in .log", o.file)
}

// alsoCrash lets the text of a crash go to the file that the log goes to now, unless
// stderr, where it goes in any case, is that file.
func alsoCrash(file *os.File) {
	now, err := file.Stat()
	if stderr, failed := os.Stderr.Stat(); err == nil && failed == nil && os.SameFile(now, stderr) {
		return
	}
	_ = debug.SetCrashOutput(file, debug.CrashOptions{}) // without it, it is on stderr alone
}

// exportTraces begins to export traces, if the environment asks for that. end sends
// what is left. Where they cannot be exported, the log says so: nobody's work needs
// them.
func exportTraces(ctx context.Context, version string, log *zap.Logger) (start tracing.Start, end func()) {
	exporter, err := telemetry.New(ctx, os.Getenv, version, log.Named("telemetry"))
	if err != nil {
		log.Warn("traces are not exported", zap.Error(err))
	}
	return exporter.Start(), func() {
		if err := exporter.Close(); err != nil {
			log.Warn("the last traces are not exported", zap.Error(err))
		}
	}
}

// fileLog loses the lines that cannot be written and goes on with the next: the disk
// may have room again.
type fileLog struct{ file *logfile.Log }

// Write implements [io.Writer]. It never fails.
func (l fileLog) Write(line []byte) (int, error) {
	_ = l.file.Write(line) // there is no place to tell it
	return len(line), nil
}
