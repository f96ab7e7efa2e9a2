package runner_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/engine"
	"nexus.internal/supervisor/cluster/runner"
)

// as is what this program does as nexus-cluster.
const as = "NEXUS_TEST_CLUSTER"

func TestMain(m *testing.M) {
	switch os.Getenv(as) {
	case "":
		goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("nexus.internal/supervisor/proc.spawnThread"), goleak.IgnoreAnyFunction("nexus.internal/supervisor/proc.(*exits).run"))
	case "engine":
		if err := serve(); err != nil {
			fmt.Fprintf(os.Stderr, "nexus-cluster: %v\n", err)
			os.Exit(1)
		}
	case "silent":
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "garbage":
		fmt.Println("hello")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

// serve is what nexus-cluster does.
func serve() error {
	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		return err
	}
	var o cluster.EngineOptions
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	e, err := engine.Start(engine.Options{Name: o.Cluster, Machine: o.Machine, Listen: o.Listen, Join: o.Join, Dir: o.Dir, Socket: o.Socket})
	if err != nil {
		return err
	}
	defer e.Close()
	ready, err := e.Ready()
	if err != nil {
		return err
	}
	text, err := json.Marshal(ready)
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	_, err = io.Copy(io.Discard, stdin)
	return err
}

const patience = time.Minute

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(patience)
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for !so() {
		select {
		case <-every.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// options are those of n machines on loopback.
func options(t *testing.T, n int, what string) (all []runner.Options) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	join := clustertest.Addresses(t, n)
	for i, listen := range join {
		all = append(all, runner.Options{
			Program: self, Env: []string{as + "=" + what}, Level: "error", Log: zap.NewNop(),
			Engine: cluster.EngineOptions{Cluster: "farm", Machine: string(rune('a' + i)), Listen: listen, Join: join, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats")},
		})
	}
	return all
}

// machine is one of a cluster, whose engine is a process.
type machine struct {
	*cluster.Node
	logs *observer.ObservedLogs
}

// engine is the process of the engine as it is now.
func (m *machine) engine() int {
	started := m.logs.FilterMessage("nexus-cluster started").All()
	return int(started[len(started)-1].ContextMap()["pid"].(int64))
}

// kill kills the engine as it is now.
func (m *machine) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(m.engine(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, o runner.Options) *machine {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	o.Log = zap.New(core)
	r, err := runner.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	link, err := cluster.Connect(r, "", o.Log)
	if err != nil {
		t.Fatal(err)
	}
	n, err := cluster.Join(link.NATS(), cluster.Options{Cluster: o.Engine.Cluster, Machine: o.Engine.Machine, Replicas: min(3, len(o.Engine.Join)), Log: o.Log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Close()
		link.Close()
		r.Close()
		if _, err := net.DialTimeout("tcp", o.Engine.Listen, time.Second); err == nil {
			t.Error("the engine listens on when its runner has ended")
		}
	})
	return &machine{n, logs}
}

// An engine that is killed is started again, somewhere else and with another token: the machine knows what was agreed on meanwhile, and
// is reached again; those that it was connected to find out that a connection is over.
func TestKilled(t *testing.T) {
	t.Parallel()
	var machines []*machine
	for _, o := range options(t, 3, "engine") {
		machines = append(machines, start(t, o))
	}
	a, b := machines[0], machines[1]
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, m := range machines {
		if err := m.Agreed(ctx); err != nil {
			t.Fatal(err)
		}
	}
	l, err := a.Listen()
	if err != nil {
		t.Fatal(err)
	}
	var answering sync.WaitGroup
	defer answering.Wait()
	defer l.Close()
	answering.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answering.Go(func() {
				_, _ = io.Copy(c, c)
				c.Close()
			})
		}
	})
	echo := func(c net.Conn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	dial := func() net.Conn {
		var c net.Conn
		until(t, "b reaches a", func() bool {
			var err error
			c, err = b.Dial(ctx, "a")
			return err == nil
		})
		return c
	}
	before := dial()
	if err := echo(before); err != nil {
		t.Fatal(err)
	}
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for i := range rounds {
		a.kill(t)
		if _, err := io.WriteString(before, "x"); err != nil && i == 0 { // nobody takes it
			t.Error(err)
		}
		agent := fmt.Sprintf("agent-%d", i)
		until(t, "b has an agent while the engine of a is gone", func() bool {
			c, err := b.Take(ctx, agent)
			return err == nil && c.Machine == "b"
		})
		until(t, "a knows that", func() bool { c, ok := a.Owner(agent); return ok && c.Machine == "b" })
		var c cluster.Claim
		until(t, "a is told so", func() bool { c, err = a.Take(ctx, agent); return err == nil })
		if c.Machine != "b" {
			t.Errorf("a takes %+v", c)
		}
		after := dial()
		if err := echo(after); err != nil {
			t.Errorf("after the engine was killed: %v", err)
		}
		after.Close()
	}
	if err := echo(before); err == nil {
		t.Error("a connection goes on that has lost something")
	}
	before.Close()
}

// An engine that stands still for good is killed, and another one started, so that the machine comes back by itself.
func TestStandsStill(t *testing.T) {
	t.Parallel()
	var machines []*machine
	for _, o := range options(t, 2, "engine") {
		machines = append(machines, start(t, o))
	}
	a, b := machines[0], machines[1]
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, m := range machines {
		if err := m.Agreed(ctx); err != nil {
			t.Fatal(err)
		}
	}
	before := a.engine()
	if err := syscall.Kill(before, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "another engine runs", func() bool { return a.engine() != before })
	if err := syscall.Kill(before, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the one that stands still is there: %v", err)
	}
	if b.logs.FilterMessageSnippet("is killed").Len() > 0 {
		t.Error("an engine that answers was killed")
	}
	until(t, "both agree", func() bool {
		c, err := a.Take(ctx, "agent")
		return err == nil && c.Machine == "a"
	})
}

// What the program says against what it is told is the error of the start, and nothing is left of it.
func TestRefusedStart(t *testing.T) {
	t.Parallel()
	o := options(t, 2, "engine")[0]
	o.Engine.Listen = "10.9.8.7:1"
	if _, err := runner.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "start nexus-cluster: 10.9.8.7:1 is reached by other machines") {
		t.Errorf("an address without certificates: %v", err)
	}
	o = options(t, 2, "engine")[0]
	o.Program += "-not-there"
	if _, err := runner.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "not-there") {
		t.Errorf("a program that is not there: %v", err)
	}
	if _, err := runner.Start(t.Context(), options(t, 2, "garbage")[0]); err == nil || !strings.Contains(err.Error(), "start nexus-cluster: ") {
		t.Errorf("a program that writes something else: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := runner.Start(ctx, options(t, 2, "silent")[0]); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that says nothing: %v", err)
	}
}
