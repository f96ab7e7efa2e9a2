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

// The keeper is our own executable, started anew with this argument, a tag, its
// record and its cgroup. Descriptor 3 ends with the server.
const (
	keeperArg = "__keep"
	keeperFD  = 3
)

const (
	// longLife is how long a keeper lives that was not ended early.
	longLife = time.Minute
	// mostPause is the longest pause before a keeper that fails is started again.
	mostPause = time.Minute
)

// init is where a process that was started as a keeper goes another way, before
// main and before the packages that cost time.
func init() {
	if len(os.Args) >= 2 && os.Args[1] == keeperArg {
		syscall.Exit(keep(os.Args[2:]))
	}
}

// keep waits for the end of the server and ends what is left of it then.
func keep(args []string) int {
	if len(args) != 3 {
		return 2
	}
	t, ok := proctree.ParseLineageTag(args[0])
	if !ok {
		return 2
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	_ = proctree.Hide() // it is nobody's business
	_, _ = io.Copy(io.Discard, os.NewFile(keeperFD, "server"))
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

// keeper runs the process of that name, and starts another when somebody ends
// it. nil is none.
type keeper struct {
	record *record
	log    *zap.Logger
	quit   chan struct{}  // closed by stop
	work   sync.WaitGroup // run, which alone knows the process, and its waits
}

// keeperProcess is one process. The server's end of alive closes with the
// server, which is how the process learns of that.
type keeperProcess struct {
	cmd   *exec.Cmd
	alive *os.File
}

func startKeeper(r *record, log *zap.Logger) (*keeper, error) {
	k := &keeper{record: r, log: log, quit: make(chan struct{})}
	p, err := k.start()
	if err != nil {
		return nil, err
	}
	k.work.Go(func() { k.run(p) })
	return k, nil
}

func (k *keeper) start() (keeperProcess, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return keeperProcess{}, err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", keeperArg, k.record.tag.String(), k.record.path, k.record.cgroup)
	cmd.Args[0] = os.Args[0]
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.ExtraFiles = []*os.File{r}
	// CONT, as somebody may have stopped it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
	if err := onSpawner(cmd.Start); err != nil {
		w.Close()
		return keeperProcess{}, err
	}
	return keeperProcess{cmd: cmd, alive: w}, nil
}

// run follows each process with another until stop is called. A stop that comes
// while there is no process, or while one is being started, ends the next one.
func (k *keeper) run(p keeperProcess) {
	failures := 0 // in a row: a process that was ended early, or could not be started
	for {
		began := time.Now()
		ended := make(chan error, 1)
		k.work.Go(func() { ended <- p.cmd.Wait() })
		var err error
		select {
		case err = <-ended:
		case <-k.quit:
			_ = p.cmd.Process.Kill() // or it is gone
			<-ended                  //nolint:errcheck // it was killed
			p.alive.Close()
			return
		}
		p.alive.Close()
		k.log.Warn("the keeper was ended", zap.Error(err))
		if time.Since(began) >= longLife {
			failures = 0
		}
		for started := false; !started; failures++ {
			if !k.pause(keeperPause(failures)) {
				return
			}
			if p, err = k.start(); err != nil {
				k.log.Error("start another keeper", zap.Error(err))
			}
			started = err == nil
		}
	}
}

// keeperPause is how long no keeper is started after so many failures in a row.
func keeperPause(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	return min(time.Second<<min(failures-1, 10), mostPause)
}

// pause waits, and reports whether stop has not been called.
func (k *keeper) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-k.quit:
		return false
	case <-timer.C:
		return true
	}
}

// stop ends the keeper, which has nothing to do any more, and returns when there
// is none. It is called once.
func (k *keeper) stop() {
	if k == nil {
		return
	}
	close(k.quit)
	k.work.Wait()
}
