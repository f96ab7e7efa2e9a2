//go:build unix

package bridge_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"nexus.internal/bridge"
)

// Ten thousand connections that say nothing, or begin a request and stop, do not
// keep a request with a key from being answered: neither where there is room for
// all of them, nor where the oldest must go.
func TestAttackIdleConnections(t *testing.T) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	n := int(min(10_000, files.Cur/2-200)) // both ends of each are this process's
	for name, most := range map[string]int{"with room for all": n + 10, "with room for few": 100} {
		t.Run(name, func(t *testing.T) { besieged(t, n, most) })
	}
}

func besieged(t *testing.T, n, most int) {
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.MaxStrangers = most })
	known := r.dial() // older than all of them, and with a key
	in := bufio.NewReader(known)
	ask := func() {
		t.Helper()
		if _, err := io.WriteString(known, withLength(r.head("POST /rpc HTTP/1.1"), list)); err != nil {
			t.Fatal(err)
		}
		if response, body := readResponse(t, in); response.StatusCode != 200 {
			t.Fatalf("HTTP %d %s", response.StatusCode, body)
		}
	}
	ask()
	strangers := make([]net.Conn, 0, n)
	defer func() {
		for _, conn := range strangers {
			conn.Close()
		}
	}()
	for i := range n {
		conn, err := net.DialTimeout("tcp", r.addr, patience)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		strangers = append(strangers, conn)
		if i%3 == 0 {
			_, _ = io.WriteString(conn, "POST /rpc HTTP/1.1\r\nHost: ") // it may be closed already
		}
	}
	ask()
	start := time.Now()
	r.works()
	t.Logf("%d idle connections, %d kept: a new one with a key answered in %s", n, most, time.Since(start))
	wait := 100 * time.Millisecond
	if most < n {
		wait = patience
	}
	if err := strangers[0].SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	_, err := strangers[0].Read(make([]byte, 1))
	if kept := errors.Is(err, os.ErrDeadlineExceeded); kept != (most >= n) {
		t.Errorf("the oldest of the idle: %v", err)
	}
	last := strangers[n-1]
	if _, err := io.WriteString(last, strings.TrimPrefix(withLength(r.head("POST /rpc HTTP/1.1"), list), prefixOf(n-1))); err != nil {
		t.Fatal(err)
	}
	if response, body := readResponse(t, bufio.NewReader(last)); response.StatusCode != 200 {
		t.Errorf("the newest of the idle, once it speaks: HTTP %d %s", response.StatusCode, body)
	}
}

// prefixOf is what the stranger of that number has sent already.
func prefixOf(i int) string {
	if i%3 == 0 {
		return "POST /rpc HTTP/1.1\r\nHost: "
	}
	return ""
}
