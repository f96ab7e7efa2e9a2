package sandbox_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/sandbox/sandboxtest"
)

func init() {
	// sockets makes sockets of many kinds, and says which.
	roles["sockets"] = func([]string) {
		for _, s := range []struct {
			name                   string
			family, kind, protocol int
		}{
			{"tcp", unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0},
			{"udp6", unix.AF_INET6, unix.SOCK_DGRAM, 0},
			{"route", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
			{"unix", unix.AF_UNIX, unix.SOCK_STREAM, 0},
			{"unix datagrams", unix.AF_UNIX, unix.SOCK_DGRAM, 0},
			{"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
			{"packet", unix.AF_PACKET, unix.SOCK_RAW, 0},
			{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
			{"alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
			{"audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
			{"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_STREAM, 0},
		} {
			if fd, err := unix.Socket(s.family, s.kind, s.protocol); err == nil {
				unix.Close(fd)
				fmt.Print(s.name, " ")
			}
		}
		fmt.Println()
	}
	// namespaces tries to enter the network of a process, and to make one of its own.
	roles["namespaces"] = func(args []string) {
		fd, err := unix.Open(args[0], unix.O_RDONLY, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
		}
		fmt.Println(err != nil, unix.Unshare(unix.CLONE_NEWNET) != nil, unix.Unshare(unix.CLONE_NEWUSER|unix.CLONE_NEWNET) != nil)
	}
	// inside is a server and its client in one network.
	roles["inside"] = func([]string) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Println(err)
			return
		}
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err == nil {
			conn.Close()
		}
		fmt.Println("inside:", err)
	}
	roles["gateless"] = func(args []string) {
		if err := sandboxtest.WithoutNamespaces(); err != nil {
			panic(err)
		}
		_, err := sandbox.Start(context.Background(), sandbox.Spec{
			Argv: sh("echo it runs"), Rules: sandbox.Rules{Confinement: sandbox.Always, ReadWrite: args, Gate: &greeter{}, Loopback: &sandbox.Loopback{}},
		})
		fmt.Println(err)
	}
}

// greeter is a gate that greets each connection.
type greeter struct{ served atomic.Int64 }

func (g *greeter) Serve(ctx context.Context, socket *os.File) {
	ln, err := net.FileListener(socket)
	socket.Close()
	if err != nil {
		panic(err)
	}
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		g.served.Add(1)
		_, _ = io.WriteString(conn, "the gate\n")
		conn.Close()
	}
}

// A program with a gate finds the gate and its own network, and no way to any other: not by
// another kind of socket, not by one of a local daemon, not through the network of a process.
func TestTheGateIsTheOnlyWayOut(t *testing.T) {
	p := newPlace(t)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := net.Listen("unix", filepath.Join(p.work, "daemon"))
	if err != nil {
		t.Fatal(err)
	}
	abstract, err := net.Listen("unix", "@nexus-test-"+filepath.Base(t.TempDir())+tag(t))
	if err != nil {
		t.Fatal(err)
	}
	var came atomic.Int64
	for _, ln := range []net.Listener{tcp, daemon, abstract} {
		defer ln.Close()
		go func() { // ends with the listener
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				came.Add(1)
				conn.Close()
			}
		}()
	}
	defer udp.Close()
	for kind, rules := range map[string]sandbox.Rules{"trusted": p.trusted(), "sandboxed": p.sandboxed()} {
		t.Run(kind, func(t *testing.T) {
			g := &greeter{}
			rules.Confinement, rules.Network, rules.Gate, rules.Loopback = sandbox.Always, false, g, newLoopback(t)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			rules.ReadOnly = append(rules.ReadOnly, filepath.Dir(self))
			want := func(want string, argv ...string) {
				t.Helper()
				if text, _ := output(t, rules, p.work, argv...); !strings.Contains(text, want) {
					t.Errorf("%v: got %q, want %q", argv[1:], text, want)
				}
			}
			want("the gate", "/bin/bash", "-c", "cat < /dev/tcp/127.0.0.1/${HTTP_PROXY##*:}")
			want("same http://127.0.0.1: localhost,127.0.0.1,::1", sh("test $HTTPS_PROXY = $http_proxy && echo same ${HTTP_PROXY%:*}: $NO_PROXY")...)
			want("inside: <nil>", role("inside")...)
			want("tcp udp6 route \n", role("sockets")...)
			want("refused", role("dial", "tcp", tcp.Addr().String())...)
			want("dial: ", role("dial", "udp", udp.LocalAddr().String())...)
			want("unreachable", role("dial", "tcp", "192.0.2.1:80")...)
			want("unreachable", role("dial", "udp", "192.0.2.1:53")...)
			want("unreachable", role("dial", "tcp", "169.254.169.254:80")...)
			want("permission denied", role("dial", "unix", filepath.Join(p.work, "daemon"))...)
			want("permission denied", role("dial", "unix", abstract.Addr().String())...)
			want("true true true", role("namespaces", fmt.Sprintf("/proc/%d/ns/net", os.Getpid()))...)
			if n := g.served.Load(); n != 1 {
				t.Errorf("the gate has served %d connections", n)
			}
		})
	}
	if n := came.Load(); n != 0 {
		t.Errorf("%d connections came out", n)
	}
	_ = udp.SetReadDeadline(time.Unix(1, 0)) // what has come is read nevertheless
	if n, from, err := udp.ReadFrom(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes came from %v", n, from)
	}
}

// Where the system gives no namespaces, there is no way to let out only some, so the program
// does not run.
func TestWithoutNamespacesThereIsNoGate(t *testing.T) {
	argv := role("gateless", t.TempDir())
	text, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil || !strings.Contains(string(text), "the kernel cannot confine programs to a network of their own") {
		t.Errorf("got %q, %v", text, err)
	}
}

// A gate, or a network that programs share, beside another way out is refused.
func TestGateOfUnconfinedPrograms(t *testing.T) {
	l := newLoopback(t)
	for _, rules := range []sandbox.Rules{
		{Gate: &greeter{}, Confinement: sandbox.Always},
		{Gate: &greeter{}, Loopback: l},
		{Loopback: l},
		{Loopback: l, Confinement: sandbox.WherePossible},
		{Gate: &greeter{}, Loopback: l, Confinement: sandbox.Always, Network: true},
	} {
		if p, err := sandbox.Start(t.Context(), sandbox.Spec{Argv: sh("true"), Rules: rules}); err == nil {
			p.Close()
			t.Errorf("%+v: it runs", rules)
		}
	}
}
