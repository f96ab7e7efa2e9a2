package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"nexus.internal/cmd/internal/config"
	"nexus.internal/cmd/internal/greeting"
	"nexus.internal/protocol/safefile"
)

// started is a server that startServer started.
type started struct {
	pid int
	log string // path of its log
}

// startServer runs nexus serve, with these further flags, in the background and returns once it listens.
// If ctx ends
// before, so does the server. Else it outlives us: it has a session of its own, logs to
// logs/server-PORT.log, and needs nobody at its stdout after the announcement.
func startServer(ctx context.Context, cfg *config.Config, port int, environ, flags []string) (s started, err error) {
	nexus, err := findNexus()
	if err != nil {
		return s, err
	}
	if err := cfg.Home.MakeDirs(); err != nil {
		return s, err
	}
	logPath := filepath.Join(cfg.Home.LogsDir(), "server-"+strconv.Itoa(port)+".log")
	logFile, err := safefile.Open(logPath, os.O_CREATE|os.O_APPEND|os.O_RDWR)
	if err != nil {
		return s, fmt.Errorf("open the server's log: %w", err)
	}
	defer logFile.Close()
	before, err := logFile.Seek(0, io.SeekEnd)
	if err != nil {
		return s, fmt.Errorf("open the server's log: %w", err)
	}
	cmd := exec.Command(nexus, append([]string{"serve", strconv.Itoa(port), "--home", string(cfg.Home), "--log-file", logPath}, flags...)...)
	cmd.Env = environ
	cmd.Stderr = logFile
	cmd.SysProcAttr = detached()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err := cmd.Start(); err != nil {
		return s, fmt.Errorf("start the server: %w", err)
	}
	s = started{pid: cmd.Process.Pid, log: logPath}
	unwatch := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // or it has ended
	defer unwatch()
	_, keyFile, err := greeting.Read(stdout)
	if keyFile != "" && unwatch() {
		return s, cmd.Process.Release()
	}
	// stdout ended without a greeting, or nobody wants the server any more: it ends.
	err = errors.Join(err, cmd.Wait())
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	if err == nil {
		err = errors.New("it ended at once")
	}
	return s, fmt.Errorf("the server did not start: %s (log: %s): %w", lastLine(logFile, before), logPath, err)
}

// freePortAfter is the first port after the given one where nothing listens on this machine. These
// are few, so that so are the logs, which have the port in their names.
func freePortAfter(port int) (int, error) {
	const most = 100
	for next := port + 1; next <= port+most; next++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(next)))
		if err == nil {
			return next, l.Close()
		}
	}
	return 0, fmt.Errorf("the ports after %d are taken", port)
}

// findNexus is the nexus beside this program, or the one on PATH.
func findNexus() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "nexus")); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("nexus")
	if err != nil {
		return "", &noServerError{"no server runs, and nexus is neither beside this program nor on PATH to start one"}
	}
	return path, nil
}

// lastLine is the last line that was written to the log since it had the
// length before; of a log without one, why that may be: the disk is full.
func lastLine(log *os.File, before int64) string {
	const most = 64 << 10 // bytes
	text, err := io.ReadAll(io.LimitReader(io.NewSectionReader(log, before, most), most))
	if err != nil || len(text) == 0 {
		if _, err := log.WriteString("nexus serve said nothing\n"); err != nil {
			return "nothing can be written to its log: " + err.Error()
		}
		return "it said nothing"
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// detached puts the server into a session of its own, so that what ends our
// terminal does not end it.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
