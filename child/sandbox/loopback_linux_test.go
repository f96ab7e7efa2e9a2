package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/sandbox/sandboxtest"
	"nexus.internal/protocol/proctree"
)

func init() {
	// server answers connections to a port of its own, which it tells.
	roles["server"] = func([]string) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(ln.Addr())
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "the server\n")
			conn.Close()
		}
	}
	roles["client"] = func(args []string) {
		conn, err := net.Dial("tcp", args[0])
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.Copy(os.Stdout, conn)
	}
	// alone runs programs that share a network where the system gives no namespaces.
	roles["alone"] = func(args []string) {
		if err := sandboxtest.WithoutNamespaces(); err != nil {
			panic(err)
		}
		rules := sandbox.Rules{Confinement: sandbox.Always, ReadWrite: args, ReadOnly: []string{filepath.Dir(role("")[0])}, Loopback: &sandbox.Loopback{}}
		for range 2 {
			p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: role("sockets"), Rules: rules})
			if err != nil {
				fmt.Println(err)
				return
			}
			text, _ := io.ReadAll(p.Stdout())
			p.Close()
			fmt.Printf("%q ", text)
		}
		rules.Loopback.Close()
	}
	// ordinary has programs of one kind and another, as whoever it is.
	roles["ordinary"] = func(args []string) {
		l := &sandbox.Loopback{}
		defer l.Close()
		trusted := sandbox.Rules{Confinement: sandbox.Always, ReadWrite: args, ReadOnly: []string{"/"}, Network: true}
		shared := sharing(l)
		shared.ReadWrite, shared.Gate = args, &greeter{}
		for _, run := range []struct {
			rules sandbox.Rules
			argv  []string
		}{
			{trusted, sh("echo trusted")},
			{shared, role("inside")},
			{shared, sh("echo x > here && ls -l here | cut -c1-4; cat /proc/net/dev | wc -l")},
			{shared, []string{"/bin/bash", "-c", "cat < /dev/tcp/127.0.0.1/${HTTP_PROXY##*:}"}},
			{trusted, sh("echo trusted; cat here")},
		} {
			p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: run.argv, Dir: args[0], Rules: run.rules})
			if err != nil {
				fmt.Println(err)
				continue
			}
			_, _ = io.Copy(os.Stdout, p.Stdout())
			if why := p.Unconfined(); why != "" {
				fmt.Println(why)
			}
			p.Close()
		}
	}
	// guarded is ordinary, of a process that others may not look into.
	roles["guarded"] = func(args []string) {
		if err := proctree.SetUndumpable(); err != nil {
			panic(err)
		}
		roles["ordinary"](args)
	}
	// sharing has a program in a network of its own, says that it runs, and waits to be killed.
	roles["sharing"] = func(args []string) {
		if err := sandbox.Adopt(); err != nil {
			panic(err)
		}
		rules := sandbox.Rules{Confinement: sandbox.Always, ReadOnly: []string{"/"}, Loopback: &sandbox.Loopback{}}
		p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: role("escape", "stay"), Env: []string{"TAG=" + args[0]}, Rules: rules})
		if err != nil {
			panic(err)
		}
		hear(p.Stdout(), 2)
		children, err := proctree.Children(os.Getpid())
		if err != nil {
			panic(err)
		}
		fmt.Println("here", strings.Trim(fmt.Sprint(children), "[]"))
		select {}
	}
}

// newLoopback is a network that is given up at the end of the test.
func newLoopback(t *testing.T) *sandbox.Loopback {
	t.Helper()
	l := &sandbox.Loopback{}
	t.Cleanup(l.Close)
	return l
}

// sharing are rules of programs that share a network.
func sharing(l *sandbox.Loopback) sandbox.Rules {
	return sandbox.Rules{Confinement: sandbox.Always, ReadOnly: []string{"/"}, Loopback: l}
}

// serve starts a server, and returns its address.
func serve(t *testing.T, rules sandbox.Rules) string {
	t.Helper()
	p := start(t, sandbox.Spec{Argv: role("server"), Rules: rules})
	address, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address)
}

// client is what a program gets from an address.
func client(t *testing.T, rules sandbox.Rules, address string) string {
	t.Helper()
	text, _ := output(t, rules, "", role("client", address)...)
	return text
}

// spawnerOf is the process that starts programs in their network.
func spawnerOf(t *testing.T) int {
	t.Helper()
	children, err := proctree.Children(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range children {
		if line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); strings.HasSuffix(string(line), "\x00__spawn\x00") {
			return pid
		}
	}
	t.Fatalf("no spawner among %v", children)
	return 0
}

// Programs that share a network find each other there, nothing outside, and nothing of others;
// and nothing outside finds them.
func TestLoopback(t *testing.T) {
	l, other := newLoopback(t), newLoopback(t)
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	inside := serve(t, sharing(l))
	if got := client(t, sharing(l), inside); got != "the server\n" {
		t.Errorf("from beside: %q", got)
	}
	for what, got := range map[string]string{
		"from another network":     client(t, sharing(other), inside),
		"to the machine's network": client(t, sharing(l), outside.Addr().String()),
	} {
		if !strings.Contains(got, "refused") {
			t.Errorf("%s: %q", what, got)
		}
	}
	if conn, err := net.Dial("tcp", inside); err == nil {
		conn.Close()
		t.Error("the server is reached from outside")
	}
	if got, _ := output(t, sharing(l), "", role("sockets")...); got != "tcp udp6 route \n" {
		t.Errorf("sockets: %q", got)
	}
	if got, _ := output(t, sharing(l), "", role("dial", "tcp", "192.0.2.1:80")...); !strings.Contains(got, "unreachable") {
		t.Errorf("to another machine: %q", got)
	}
	for _, of := range []int{os.Getpid(), spawnerOf(t)} {
		if got, _ := output(t, sharing(l), "", role("namespaces", fmt.Sprintf("/proc/%d/ns/net", of))...); got != "true true true\n" {
			t.Errorf("namespaces of %d: %q", of, got)
		}
	}
	l.Renew()
	if got := client(t, sharing(l), inside); !strings.Contains(got, "refused") {
		t.Errorf("from the network after: %q", got)
	}
	l.Close()
	if p, err := sandbox.Start(t.Context(), sandbox.Spec{Argv: sh("true"), Rules: sharing(l)}); err == nil {
		p.Close()
		t.Error("a program starts after the end")
	}
}

// A user without privileges has it, too, beside programs of other kinds, and so does a process that
// holds keys.
func TestLoopbackOfAnOrdinaryUser(t *testing.T) {
	for _, uid := range []uint32{0, 65534} {
		for _, role := range []string{"ordinary", "guarded"} {
			if got := asUser(t, uid, role); got != "trusted\ninside: <nil>\n-rw-\n3\nthe gate\ntrusted\nx\n" {
				t.Errorf("user %d, %s: %q", uid, role, got)
			}
		}
	}
}

// Many programs start in their network at once.
func TestLoopbackAtOnce(t *testing.T) {
	l := newLoopback(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			p, err := sandbox.Start(t.Context(), sandbox.Spec{Argv: role("inside"), Rules: sharing(l)})
			if err != nil {
				t.Error(err)
				return
			}
			defer p.Close()
			if text, err := io.ReadAll(p.Stdout()); string(text) != "inside: <nil>\n" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
	all.Wait()
}

// Whatever is done to the spawner, programs go on, and others start: in its network where it was
// stopped, in a new one where it was killed.
func TestSpawnerStoppedAndKilled(t *testing.T) {
	l := newLoopback(t)
	rules := sharing(l)
	inside := serve(t, rules)
	for range 3 {
		if err := syscall.Kill(spawnerOf(t), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if got := client(t, rules, inside); got != "the server\n" {
			t.Errorf("after it was stopped: %q", got)
		}
	}
	killed := spawnerOf(t)
	ends := watchAll(t, []int{killed})
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitEnds(t, ends)
	again := serve(t, rules)
	if got := client(t, rules, again); got != "the server\n" || spawnerOf(t) == killed {
		t.Errorf("after it was killed: %q", got)
	}
}

// A program in a network of its own that must not be where it is does not start, and leaves nothing.
func TestLoopbackOfADirectoryThatIsGone(t *testing.T) {
	l := newLoopback(t)
	for range 3 {
		p, err := sandbox.Start(t.Context(), sandbox.Spec{Argv: sh("true"), Dir: "/proc/self/fd/-", Rules: sharing(l)})
		if err == nil {
			p.Close()
			t.Fatal("it runs")
		}
	}
	if got := client(t, sharing(l), serve(t, sharing(l))); got != "the server\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// Nothing is left of a child that was killed: not its programs, not what started them.
func TestLoopbackOfAChildThatIsKilled(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		argv := role("sharing", tag(t))
		child := exec.Command(argv[0], argv[1:]...)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var pids []int
		for _, text := range strings.Fields(line)[1:] {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		if len(pids) != 2 { // a reaper and a spawner
			t.Fatalf("children: %q", line)
		}
		ends := watchAll(t, append(tagged(t, tag(t)), pids...))
		if stopped {
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		_ = child.Process.Kill()
		_ = child.Wait()
		awaitEnds(t, ends)
		none(t, tag(t))
	}
}

// Where the system gives no namespaces, programs have no sockets, as without a network to share.
func TestWithoutNamespacesThereIsNoLoopback(t *testing.T) {
	argv := role("alone", t.TempDir())
	text, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil || string(text) != `"\n" "\n" ` {
		t.Errorf("got %q, %v", text, err)
	}
}
