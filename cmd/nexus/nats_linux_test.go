package main_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"

	"nexus.internal/supervisor/cluster"
)

// natsCluster starts three servers of NATS that are one, in processes of their own, and is how clients reach them.
func natsCluster(t *testing.T) (urls string) {
	t.Helper()
	var join, all []string
	names := []string{"n1", "n2", "n3"}
	for _, address := range clusterAddresses(t, names...) {
		_, at, _ := strings.Cut(address, "=")
		join = append(join, at)
	}
	for i, name := range names {
		cmd := exec.Command(filepath.Join(programs, "nexus-cluster"), "--log-level", "error")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var log bytes.Buffer
		cmd.Stderr = &log
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("a server of NATS: %v\n%s", err, &log)
			}
		})
		options, err := json.Marshal(cluster.EngineOptions{Cluster: "theirs", Machine: name, Listen: join[i], Join: join, Dir: filepath.Join(t.TempDir(), name), Socket: filepath.Join(t.TempDir(), "nats")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(append(options, '\n')); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		all = append(all, "nats://"+gjson.Get(line, "token").Str+"@"+atPort(t, gjson.Get(line, "socket").Str))
	}
	return strings.Join(all, ",")
}

// atPort is a port on loopback where a unix socket is reached.
func atPort(t *testing.T, socket string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var copying sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		copying.Wait()
	})
	copying.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			to, err := net.Dial("unix", socket)
			if err != nil {
				c.Close()
				continue
			}
			for from, to := range map[net.Conn]net.Conn{c: to, to: c} {
				copying.Go(func() {
					_, _ = io.Copy(to, from)
					to.Close()
					from.Close()
				})
			}
		}
	})
	return l.Addr().String()
}

// Machines are one by a NATS that is there already: without nexus-cluster, addresses and certificates. An agent of a machine that is lost goes on at another
// one, which removes the lost one; that is one of them again when it is started.
func TestClusterOnNATS(t *testing.T) {
	t.Parallel()
	urls, shared := natsCluster(t), t.TempDir()
	start := func(machine string) *live {
		return newLive(t, func(cmd *exec.Cmd) {
			cmd.Args = append(cmd.Args, "--cluster", "farm", "--machine", machine, "--nats", urls, "--shared-path", shared)
		})
	}
	a, b := start("a"), start("b")
	for _, s := range []*live{a, b} {
		s.untilNodes("a up, b up")
	}
	if pid, err := a.engine(); err == nil {
		t.Errorf("a server with a NATS that is there has a nexus-cluster, %d", pid)
	}
	a.createIn("worker", shared)
	if answer := b.call("/agent/worker", "send", `{"content":"My name is Alice","request_id":"first"}`); !strings.Contains(answer, "Alice") {
		t.Fatal(answer)
	}
	b.refusesRemoval("nexus cluster drain a", "a")
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = a.cmd.Wait() // that it was killed
	b.untilNodes("a lost, b up")
	untilMoved(t, b, "worker")
	if answer := b.call("/agent/worker", "send", `{"content":"My name is Alice","request_id":"first"}`); !gjson.Get(answer, "result.replayed").Bool() {
		t.Errorf("what was acknowledged: %s", answer)
	}
	if says, err := b.removes("a"); err != nil || !strings.Contains(says, "a is removed") {
		t.Errorf("remove a: %v\n%s", err, says)
	}
	b.untilNodes("b up")
	b.refusesRemoval("no machine of that name is known", "c")

	a.again()
	for _, s := range []*live{a, b} {
		s.untilNodes("a up, b up")
		untilMoved(t, s, "worker")
	}
	b.end()
	untilMoved(t, a, "worker")
	a.end()
}
