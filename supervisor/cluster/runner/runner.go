// Package runner keeps a nexus-cluster running, which is this machine's part of a cluster.
//
//	r, err := runner.Start(ctx, runner.Options{Program: path, Engine: engine, Guard: guard, Log: log})
//	defer r.Close()
//	link, err := cluster.Connect(r, "", log)
//
// The first start is waited for: if the program refuses what it is told, that is the error. From then on it is started
// again whenever it ends, at once and then after a pause that doubles. One that answers nobody for 10 s, as it stands still, is killed. It ends with its runner, and with this
// process however that ends, as its stdin does.
package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/protocol/ratelimit"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/proc"
)

const (
	// startPatience is how long the program may take until it is ready.
	startPatience = 45 * time.Second
	// firstPatience is how long the first start is tried: the engine of a server that was just killed may still have the port.
	firstPatience = 2 * time.Second
	// The pauses between starts.
	firstPause, maxPause = 100 * time.Millisecond, 5 * time.Second
	// steady is after how long without an end the pauses begin anew.
	steady = time.Minute
	// pingEvery is how often the program is asked whether it answers, and pingPatience how long it may take. After maxSilent
	// times in a row without an answer it is killed. Times are counted, not seconds: where all of the machine stood still, the program did not fail.
	pingEvery, pingPatience, maxSilent = time.Second, 2 * time.Second, 5
	// closeGrace is how long it may take to end once its stdin has.
	closeGrace = 5 * time.Second
)

// Options say what to run.
type Options struct {
	// Program is the path of nexus-cluster.
	Program string
	// Env is its whole environment.
	Env []string
	// Level is the lowest level of its log, which goes to Log.
	Level  string
	Engine cluster.EngineOptions
	Guard  *proc.Guard // nil for none
	Log    *zap.Logger
}

// Runner keeps it running. Its methods may be called from any goroutine.
type Runner struct {
	o       Options
	line    []byte // what it reads
	stop    context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	ready cluster.EngineReady
	err   error // why it is not ready; nil while it is
}

// Start starts it, and returns once it is ready.
func Start(ctx context.Context, o Options) (*Runner, error) {
	line, err := json.Marshal(o.Engine)
	if err != nil {
		return nil, err
	}
	r := &Runner{o: o, line: append(line, '\n')}
	deadline := time.Now().Add(firstPatience)
	p, err := r.start(ctx)
	for err != nil && ctx.Err() == nil && time.Now().Before(deadline) && ratelimit.Sleep(ctx, 2*firstPause) == nil {
		p, err = r.start(ctx)
	}
	if err != nil {
		return nil, err
	}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	r.running.Go(func() { r.keep(keeping, p) })
	return r, nil
}

// Close ends it, and waits for its end.
func (r *Runner) Close() {
	r.stop()
	r.running.Wait()
}

// Ready implements [cluster.Engine].
func (r *Runner) Ready() (cluster.EngineReady, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready, r.err
}

func (r *Runner) note(ready cluster.EngineReady, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready, r.err = ready, err
}

// keep starts it again whenever it has ended, until ctx ends. Then nothing of it is left.
func (r *Runner) keep(ctx context.Context, p *proc.Process) {
	pause, since := firstPause, time.Now()
	for {
		if p != nil {
			r.running.Go(func() { r.watch(ctx, p) })
			select {
			case <-ctx.Done():
				p.Stop(context.WithoutCancel(ctx), nil)
				return
			case <-p.Done():
			}
			exit := p.Exit()
			r.note(cluster.EngineReady{}, fmt.Errorf("nexus-cluster has ended: %s", exit))
			r.o.Log.Warn("nexus-cluster has ended", zap.Stringer("exit", exit), zap.String("stderr", reason(exit.Stderr)))
			if time.Since(since) > steady {
				pause = firstPause
			}
		}
		if ratelimit.Sleep(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, maxPause)
		since = time.Now()
		var err error
		if p, err = r.start(ctx); err != nil && ctx.Err() == nil {
			p = nil
			r.note(cluster.EngineReady{}, err)
			r.o.Log.Error("start nexus-cluster", zap.Error(err), zap.Duration("again_in", pause))
		}
	}
}

// watch kills a process that answers nobody any more: it stands still, and neither ends nor serves. It returns once that has ended, or ctx.
func (r *Runner) watch(ctx context.Context, p *proc.Process) {
	ready, err := r.Ready()
	if err != nil {
		return // it has ended
	}
	every := time.NewTicker(pingEvery)
	defer every.Stop()
	for silent := 0; silent < maxSilent; {
		select {
		case <-p.Done():
			return
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if err = ping(ctx, ready); err == nil {
			silent = 0
		} else {
			silent++
		}
	}
	r.o.Log.Warn("nexus-cluster answers nobody, and is killed", zap.Int("pid", p.PID()), zap.Error(err))
	now, hurry := context.WithCancel(ctx)
	hurry()
	p.Stop(now, nil)
}

// ping connects to a server of NATS, which greets whoever does.
func ping(ctx context.Context, server cluster.EngineReady) error {
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	conn, err := server.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(pingPatience)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// start starts it and waits until it is ready. On an error, nothing of it is left.
func (r *Runner) start(ctx context.Context) (*proc.Process, error) {
	p, err := proc.Start(proc.Spec{
		Argv: []string{r.o.Program, "--log-format=json", "--log-level=" + r.o.Level}, Env: r.o.Env, Log: r.o.Log, Guard: r.o.Guard,
		Graces: proc.Graces{Close: closeGrace},
	})
	if err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("nexus-cluster is not ready after %s", startPatience))
	defer cancel()
	unhook := context.AfterFunc(starting, func() { p.Stop(starting, nil) })
	ready, err := r.introduce(p)
	if !unhook() {
		err = context.Cause(starting)
	}
	if err != nil {
		exit := p.Stop(starting, nil)
		if said := reason(exit.Stderr); said != "" {
			err = errors.New(said)
		}
		return nil, fmt.Errorf("start nexus-cluster: %w", err)
	}
	p.Discard() // it writes nothing more
	p.ForgetStderr()
	r.note(ready, nil)
	r.o.Log.Info("nexus-cluster started", zap.Int("pid", p.PID()), zap.String("listen", r.o.Engine.Listen))
	return p, nil
}

// introduce tells the process what it is, and reads where it takes clients.
func (r *Runner) introduce(p *proc.Process) (ready cluster.EngineReady, err error) {
	if _, err := p.Write(r.line); err != nil {
		return ready, err
	}
	line, err := bufio.NewReader(p.Stdout()).ReadSlice('\n')
	if err != nil {
		return ready, err
	}
	return ready, strict.Unmarshal(line, &ready, strict.IgnoreUnknown)
}

// reason is the last line that the program wrote for people; "" without one.
func reason(stderr string) (said string) {
	for line := range strings.Lines(stderr) {
		if text, ok := strings.CutPrefix(line, "nexus-cluster: "); ok {
			said = strings.TrimSpace(text)
		}
	}
	return said
}
