package proc

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// The watchdog is our own executable, started anew with this argument, a tag, its
// record and its cgroup. Descriptor 3 ends with the server.
const (
	watchdogArg = "__watchdog"
	watchdogFD  = 3
)

const (
	// longLife is how long a watchdog lives that was not ended early.
	longLife = time.Minute
	// mostPause is the longest pause before a watchdog that fails is started again.
	mostPause = time.Minute
)

// init is where a process that was started as a watchdog goes another way, before
// main and before the packages that cost time.
func init() {
	if len(os.Args) >= 2 && os.Args[1] == watchdogArg {
		syscall.Exit(runWatchdog(os.Args[2:]))
	}
}

// runWatchdog waits for the end of the server and ends what is left of it then.
func runWatchdog(args []string) int {
	if len(args) != 3 {
		return 2
	}
	t, ok := proctree.ParseLineageTag(args[0])
	if !ok {
		return 2
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	_ = proctree.SetUndumpable() // it is nobody's business
	_, _ = io.Copy(io.Discard, os.NewFile(watchdogFD, "server"))
	// What it is to end may want all of the processors. Only root may want more.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0) // where sessions share the processors
	r := &record{tag: t, path: args[1], cgroup: args[2]}
	if left, err := r.sweep(); len(left) > 0 || err != nil {
		return 1
	}
	os.Remove(r.path)
	return 0
}

// watchdog runs the process of that name, and starts another when somebody ends
// it. nil is none.
type watchdog struct {
	record *record
	log    *zap.Logger
	quit   chan struct{}  // closed by stop
	work   sync.WaitGroup // run, which alone knows the process, and its waits
}

// watchdogProcess is one process. The server's end of alive closes with the
// server, which is how the process learns of that.
type watchdogProcess struct {
	cmd   *exec.Cmd
	alive *os.File
}

func startWatchdog(r *record, log *zap.Logger) (*watchdog, error) {
	wd := &watchdog{record: r, log: log, quit: make(chan struct{})}
	p, err := wd.start()
	if err != nil {
		return nil, err
	}
	wd.work.Go(func() { wd.run(p) })
	return wd, nil
}

func (wd *watchdog) start() (watchdogProcess, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return watchdogProcess{}, err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", watchdogArg, wd.record.tag.String(), wd.record.path, wd.record.cgroup)
	cmd.Args[0] = os.Args[0]
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.ExtraFiles = []*os.File{r}
	// CONT, as somebody may have stopped it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
	if err := onSpawner(cmd.Start); err != nil {
		w.Close()
		return watchdogProcess{}, err
	}
	return watchdogProcess{cmd: cmd, alive: w}, nil
}

// run follows each process with another until stop is called. A stop that comes
// while there is no process, or while one is being started, ends the next one.
func (wd *watchdog) run(p watchdogProcess) {
	failures := 0 // in a row: a process that was ended early, or could not be started
	for {
		began := time.Now()
		ended := make(chan error, 1)
		wd.work.Go(func() { ended <- p.cmd.Wait() })
		var err error
		select {
		case err = <-ended:
		case <-wd.quit:
			_ = p.cmd.Process.Kill() // or it is gone
			<-ended                  //nolint:errcheck // it was killed
			p.alive.Close()
			return
		}
		p.alive.Close()
		wd.log.Warn("the watchdog was ended", zap.Error(err))
		if time.Since(began) >= longLife {
			failures = 0
		}
		for started := false; !started; failures++ {
			if !wd.pause(watchdogPause(failures)) {
				return
			}
			if p, err = wd.start(); err != nil {
				wd.log.Error("start another watchdog", zap.Error(err))
			}
			started = err == nil
		}
	}
}

// watchdogPause is how long no watchdog is started after so many failures in a row.
func watchdogPause(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	return min(time.Second<<min(failures-1, 10), mostPause)
}

// pause waits, and reports whether stop has not been called.
func (wd *watchdog) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wd.quit:
		return false
	case <-timer.C:
		return true
	}
}

// stop ends the watchdog, which has nothing to do any more, and returns when there
// is none. It is called once.
func (wd *watchdog) stop() {
	if wd == nil {
		return
	}
	close(wd.quit)
	wd.work.Wait()
}
