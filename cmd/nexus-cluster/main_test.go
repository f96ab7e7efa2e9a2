package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/clustertest"
	"nexus.internal/supervisor/cluster/identity"
)

func TestMain(m *testing.M) { clustertest.Verify(m) }

// said is an engine that has said this.
type said struct{ ready cluster.EngineReady }

func (s said) Ready() (cluster.EngineReady, error) { return s.ready, nil }

// line are options as they are read.
func line(t *testing.T, o cluster.EngineOptions) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// It says where it takes clients, takes those with its token alone, and ends when stdin does, so that it can begin again.
func TestLife(t *testing.T) {
	join, dir := clustertest.Addresses(t, 2), filepath.Join(t.TempDir(), "dir")
	o := cluster.EngineOptions{Cluster: "farm", Machine: "a", Listen: join[0], Join: join, Dir: dir, Socket: filepath.Join(t.TempDir(), "nats")}
	for range 2 {
		stdin, input := io.Pipe()
		output, stdout := io.Pipe()
		var stderr bytes.Buffer
		status := make(chan int, 1)
		go func() {
			status <- run(t.Context(), []string{"--log-level", "error"}, stdin, stdout, &stderr)
			stdout.Close()
		}()
		if _, err := io.WriteString(input, line(t, o)); err != nil {
			t.Fatal(err)
		}
		text, err := bufio.NewReader(output).ReadBytes('\n')
		if err != nil {
			t.Fatalf("%v: %s", err, &stderr)
		}
		var ready cluster.EngineReady
		if err := json.Unmarshal(text, &ready); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if nc, err := nats.Connect("", cluster.Dialer(said{ready})); err == nil {
			nc.Close()
			t.Error("a client without the token is let in")
		}
		closed := make(chan struct{})
		nc, err := nats.Connect("", cluster.Dialer(said{ready}), nats.Token(ready.Token), nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
		if err != nil {
			t.Fatal(err)
		}
		var second bytes.Buffer
		if got := run(t.Context(), nil, strings.NewReader(line(t, o)), io.Discard, &second); got != 1 || !strings.Contains(second.String(), "another nexus-cluster uses "+dir) {
			t.Errorf("a second one in its directory ends with %d: %s", got, &second)
		}
		input.Close()
		if got := <-status; got != 0 {
			t.Errorf("it ends with %d: %s", got, &stderr)
		}
		<-closed // as its server is gone
		nc.Close()
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info.Mode(), err)
	}
}

// What is wrong with the command line or with the line on stdin is said, and nothing is started.
func TestRefused(t *testing.T) {
	join := clustertest.Addresses(t, 2)
	good := cluster.EngineOptions{Cluster: "farm", Machine: "a", Listen: join[0], Join: join, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats")}
	with := func(change func(*cluster.EngineOptions)) string {
		o := good
		change(&o)
		return line(t, o)
	}
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, tc := range []struct {
		args   []string
		stdin  string
		status int
		want   string
	}{
		{[]string{"--joi"}, "", 2, "unknown flag: --joi"},
		{[]string{"farm"}, "", 2, `unexpected argument "farm"`},
		{[]string{"--log-level", "all"}, "", 2, "must be debug, info, warn or error"},
		{nil, "", 1, "read the line on stdin that says which machine this is: EOF"},
		{nil, strings.Repeat("x", maxLine+1), 1, "has more than 65536 bytes"},
		{nil, "{}\n", 1, "cluster"},
		{nil, `{"clustr":"x"}`, 1, "clustr"},
		{nil, with(func(o *cluster.EngineOptions) { o.Dir = "" }), 1, "there is no directory"},
		{nil, with(func(o *cluster.EngineOptions) { o.Socket = "" }), 1, "there is no socket for clients"},
		{nil, strings.Replace(line(t, good), `"socket"`, `"port"`, 1), 1, "if nexus serve is of another version than nexus-cluster, start it again"},
		{nil, with(func(o *cluster.EngineOptions) { o.Listen = "10.9.8.7:8766" }), 1, "it needs certificates (nexus cluster init)"},
		{nil, with(func(o *cluster.EngineOptions) { o.Join = join[:1] }), 1, "a cluster joins 2 to 100 machines"},
		{nil, with(func(o *cluster.EngineOptions) { o.Certificates = &nowhere }), 1, "the certificates of the machine: open " + nowhere},
	} {
		var stdout, stderr bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		status := run(ctx, tc.args, strings.NewReader(tc.stdin), &stdout, &stderr)
		cancel()
		if status != tc.status || stdout.Len() > 0 || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%q, %.80q: %d, %q, %q; want %q", tc.args, tc.stdin, status, &stdout, &stderr, tc.want)
		}
	}
}

// Help and version are on stdout.
func TestWords(t *testing.T) {
	for word, want := range map[string]string{"--help": "Usage: nexus-cluster", "help": "--log-level", "--version": "nexus-cluster version", "version": "nexus-cluster version"} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), []string{word}, strings.NewReader(""), &stdout, &stderr); status != 0 || !strings.Contains(stdout.String(), want) {
			t.Errorf("%s: %d, %s%s", word, status, &stdout, &stderr)
		}
	}
}

// With certificates it takes the machines of its cluster; it is there for them on an address that is not loopback, too.
func TestCertificates(t *testing.T) {
	join, dir := clustertest.Addresses(t, 2), filepath.Join(t.TempDir(), "farm")
	c := identity.Cluster{Name: "farm"}
	for i, listen := range join {
		c.Machines = append(c.Machines, identity.Address{Machine: fmt.Sprintf("m%d", i), Listen: listen})
	}
	if _, err := identity.Init(dir, c); err != nil {
		t.Fatal(err)
	}
	certificates := filepath.Join(dir, "m0")
	stdin, input := io.Pipe()
	output, stdout := io.Pipe()
	var stderr bytes.Buffer
	status := make(chan int, 1)
	go func() {
		status <- run(t.Context(), []string{"--log-level", "error"}, stdin, stdout, &stderr)
		stdout.Close()
	}()
	o := cluster.EngineOptions{Cluster: "farm", Machine: "m0", Listen: join[0], Join: join, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats"), Certificates: &certificates}
	if _, err := io.WriteString(input, line(t, o)); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(output).ReadBytes('\n'); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	input.Close()
	if got := <-status; got != 0 {
		t.Errorf("it ends with %d: %s", got, &stderr)
	}
}
