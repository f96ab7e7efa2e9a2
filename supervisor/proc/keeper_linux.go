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
)

// The keeper is our own executable, started anew with this argument, a tag, its
// record and its cgroup. Descriptor 3 ends with the server.
const (
	keeperArg = "__keep"
	keeperFD  = 3
)

// leastLife is how long a keeper must have lived to be followed by another.
const leastLife = time.Second

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
	t, ok := parseTag(args[0])
	if !ok {
		return 2
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // it is nobody's business
	_, _ = io.Copy(io.Discard, os.NewFile(keeperFD, "server"))
	// What it is to end may want all of the processors. Only root may want more.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0) // where sessions share the processors
	r := &record{tag: t, path: args[1], cgroup: args[2]}
	if len(r.sweep()) > 0 {
		return 1
	}
	os.Remove(r.path)
	return 0
}

// keeper is the process of that name; nil is none.
type keeper struct {
	record *record
	log    *zap.Logger
	work   sync.WaitGroup // follow

	mu      sync.Mutex // guards what follows
	process *os.Process
	alive   *os.File // its end tells the keeper of ours
	began   time.Time
	over    bool
}

func startKeeper(r *record, log *zap.Logger) (*keeper, error) {
	k := &keeper{record: r, log: log}
	cmd, err := k.start()
	if err != nil {
		return nil, err
	}
	k.work.Go(func() { k.follow(cmd) })
	return k, nil
}

func (k *keeper) start() (*exec.Cmd, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
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
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.process, k.alive, k.began = cmd.Process, w, time.Now()
	return cmd, nil
}

// follow starts another keeper when one is ended by somebody else.
func (k *keeper) follow(cmd *exec.Cmd) {
	for {
		err := cmd.Wait()
		k.mu.Lock()
		over, life := k.over, time.Since(k.began)
		k.alive.Close()
		k.mu.Unlock()
		if over {
			return
		}
		k.log.Warn("the keeper was ended", zap.Error(err))
		if life < leastLife {
			k.log.Error("there is no keeper any more: what is left when this server is killed stays until the next one starts")
			return
		}
		if cmd, err = k.start(); err != nil {
			k.log.Error("start another keeper", zap.Error(err))
			return
		}
	}
}

// stop ends the keeper, which has nothing to do any more.
func (k *keeper) stop() {
	if k == nil {
		return
	}
	k.mu.Lock()
	k.over = true
	_ = k.process.Kill() // or it is gone
	k.mu.Unlock()
	k.work.Wait()
}
