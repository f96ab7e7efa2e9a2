package main_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Strangers at the port of a machine's nexus-cluster take all files that it may open, while agents work. Once they are gone, the machine is
// one of three again, by itself: another one may be lost then.
func TestClusterAmongStrangers(t *testing.T) {
	addresses := clusterAddresses(t, "a", "b", "c")
	shared, a, b, c := farmAt(t, addresses)
	a.createIn("worker", shared)
	answered(t, a, "My name is Alice", "Alice")
	engine, err := b.engine()
	if err != nil {
		t.Fatal(err)
	}
	_, at, _ := strings.Cut(addresses[1], "=")
	if got := takesAt(t, engine); len(got) != 1 || got[0] != at {
		t.Errorf("strangers reach nexus-cluster at %v, and not at %s alone", got, at)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", engine))
	if err != nil {
		t.Fatal(err)
	}
	few := &unix.Rlimit{Cur: uint64(len(open)) + 8, Max: uint64(len(open)) + 8}
	if err := unix.Prlimit(engine, unix.RLIMIT_NOFILE, few, nil); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var strangers sync.WaitGroup
	for range 40 {
		strangers.Go(func() {
			for {
				conn, err := net.Dial("tcp", at)
				if err == nil {
					_, _ = conn.Read(make([]byte, 1)) // until it is closed, as it says nothing
					_ = conn.Close()
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	for i := range 100 {
		a.send("worker", fmt.Sprintf("echo %d %s", i, strings.Repeat("x", 1_000)))
	}
	close(over)
	strangers.Wait()
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b up, c up")
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // that it was killed
	untilMoved(t, a, "worker")
	untilMoved(t, b, "worker")
}

// takesAt are the addresses at which a process takes connections by TCP.
func takesAt(t *testing.T, pid int) (addresses []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, file := range files {
		socket, _ := os.Readlink(file) // it may have been closed
		has[socket] = true
	}
	for _, version := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, version))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			const listens = "0A"
			if fields[3] != listens || !has["socket:["+fields[9]+"]"] {
				continue
			}
			var ip, port uint32
			if _, err := fmt.Sscanf(fields[1], "%X:%X", &ip, &port); err != nil {
				t.Fatalf("%s: %v", fields[1], err)
			}
			addresses = append(addresses, netip.AddrPortFrom(netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, ip))), uint16(port)).String())
		}
	}
	return addresses
}
