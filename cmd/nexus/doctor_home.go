package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/bridge/homelock"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
)

// home looks at the home itself, and at the room that is left where it lies.
func (d *doctor) home(home string) {
	const otherHome = "choose another home (--home, NEXUS_HOME)"
	dir := home
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dir = filepath.Dir(dir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		d.add("home", isFail, otherHome, "%s: %v", home, err)
		return
	}
	closed := unix.Access(dir, unix.W_OK|unix.X_OK)
	switch {
	case errors.Is(closed, unix.EROFS):
		d.add("home", isFail, "mount it for writing, or "+otherHome, "%s lies on a file system that is mounted read-only", home)
	case dir == home && closed != nil:
		d.add("home", isFail, "chmod 700 "+home+", or "+otherHome, "%s (mode %04o) is not writable for user %d", home, info.Mode().Perm(), os.Geteuid())
	case dir == home && info.Mode().Perm()&0o077 != 0:
		d.add("home", isWarn, "chmod 700 "+home, "%s has mode %04o: others see what is in it", home, info.Mode().Perm())
	case dir == home:
		d.add("home", isOK, "", "%s is ours alone", home)
	case !info.IsDir() || closed != nil:
		d.add("home", isFail, otherHome+", or have it made: it must belong to user "+userName(), "%s is not there, and user %d cannot make it in %s", home, os.Geteuid(), dir)
	default:
		d.add("home", isOK, "", "%s is not there yet: the first server makes it", home)
	}
	d.disk(dir)
	if d.cfg != nil && protocol.ValueOr(d.cfg.Logs.Sessions, true) {
		if logs := d.cfg.SessionLogsDir(); filepath.Dir(logs) != filepath.Join(home, "logs") {
			if _, err := os.Stat(logs); err == nil { // else the server makes it
				d.disk(logs)
			}
		}
	}
}

// disk looks at the room that is left where a directory lies.
func (d *doctor) disk(dir string) {
	const (
		least, little = 100 << 20, 1 << 30 // bytes
		leastFiles    = 1000
		room          = "make room, or choose another home (--home, NEXUS_HOME)"
	)
	free, files, err := roomIn(dir)
	state, do := isOK, ""
	switch {
	case err != nil:
		d.add("disk", isFail, room, "%s: %v", dir, err)
		return
	case free < least || files < leastFiles:
		state, do = isFail, room
	case free < little:
		state, do = isWarn, room
	}
	if files < leastFiles {
		d.add("disk", state, do, "%s: room for %d files", dir, files)
		return
	}
	d.add("disk", state, do, "%s: %d MiB free", dir, free>>20)
}

// keys looks at the keys of the server and of the providers that are used.
func (d *doctor) keys(home string) {
	found := len(d.findings)
	paths, _ := filepath.Glob(filepath.Join(home, "*.key")) // the pattern is well-formed
	for _, path := range append(paths, filepath.Join(home, "keys.json")) {
		if info, err := os.Lstat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			d.add("keys", isFail, "chmod 600 "+path, "%s has mode %04o: others read the key", path, info.Mode().Perm())
		}
	}
	if d.cfg != nil {
		for _, name := range d.cfg.UsedProviders() {
			p, err := d.cfg.Models.Provider(name)
			if err != nil {
				continue // the configuration says so
			}
			_, err = d.cfg.Key(config.Choice{Name: name, Provider: p})
			if missing, ok := errors.AsType[*config.MissingKeyError](err); ok && missing.Env != "" {
				d.add("keys", isWarn, "export "+missing.Env+"=… where the server is started, or in its unit (EnvironmentFile=)", "%v, as it is not here", err)
			} else if err != nil {
				d.add("keys", isWarn, "name the variable in providers."+name+".api_key_env", "%v", err)
			}
		}
	}
	if len(d.findings) == found {
		d.add("keys", isOK, "", "no key is missing, and nobody else reads those in files")
	}
}

// server asks the home's server what it says of itself.
func (d *doctor) server(ctx context.Context, home string) {
	s, err := homelock.Find(home)
	switch {
	case err != nil:
		d.add("server", isFail, "stop what uses the home, or choose another home (--home, NEXUS_HOME)", "%v", err)
		return
	case !s.Runs:
		d.add("server", isOK, "", "none of this home runs")
		return
	}
	d.app.Here(s.Port)
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	const again = "nexus-rpc shutdown, or kill its process if it does not answer, and start it again; its log says more"
	c, err := d.app.Connect(ctx, false)
	if err != nil {
		d.add("server", isFail, again, "process %d, port %d: %v", s.PID, s.Port, err)
		return
	}
	defer c.Close()
	ready, err := c.Ready(ctx)
	if err != nil {
		d.add("server", isFail, again, "process %d, port %d: %v", s.PID, s.Port, err)
		return
	}
	d.guard = ready.Guard
	if len(ready.Reasons) == 0 {
		d.add("server", isOK, "", "one of this home runs: process %d, port %d", s.PID, s.Port)
	}
	for _, reason := range ready.Reasons {
		d.add("server", isFail, again, "process %d, port %d: %s", s.PID, s.Port, reason)
	}
	for _, warning := range ready.Warnings {
		d.add("server", isWarn, "correct it; kill -HUP has the server read config.json again, and a variable needs a restart", "it says: %s", warning)
	}
	if ready.Version != d.app.Version {
		d.add("server", isWarn, "nexus-rpc shutdown, and start it again", "it is version %s, and this is %s", ready.Version, d.app.Version)
	}
	d.cluster(ctx, c)
}

// serverPatience bounds what the server is asked.
const serverPatience = 10 * time.Second

// clock looks at whether the time can be right: signatures and certificates are valid at their time.
func (d *doctor) clock(home string) {
	const set = "set the clock: timedatectl set-ntp true, or a service such as chronyd"
	now := time.Now()
	for _, name := range []string{"config.json", "audit.jsonl", "run/lock", "sessions"} {
		if info, err := os.Stat(filepath.Join(home, name)); err == nil && info.ModTime().After(now.Add(2*time.Minute)) {
			d.add("clock", isFail, set+"; touch the file if the clock is right", "it is %s, and %s is of %s", inUTC(now), filepath.Join(home, name), inUTC(info.ModTime()))
			return
		}
	}
	switch kept, known := clockKept(); {
	case now.Before(written):
		d.add("clock", isFail, set, "it says %s, which is before this program was written", inUTC(now))
	case known && !kept:
		d.add("clock", isWarn, set, "it says %s, and the kernel knows of nobody who keeps it right", inUTC(now))
	default:
		d.add("clock", isOK, "", "%s", inUTC(now))
	}
}

// written is a time before this program was.
var written = time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)

func inUTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
