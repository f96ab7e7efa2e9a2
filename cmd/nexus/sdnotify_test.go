package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/auth"
)

// A server whose connections are taken and whose requests hang is not ready, and
// does not live; any answer will do.
func TestHeraldOfAHungServer(t *testing.T) {
	const watchdog, patience = 200 * time.Millisecond, 30 * time.Second
	path := filepath.Join(t.TempDir(), "n")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "200000")
	told := func(wait time.Duration) string {
		_ = socket.SetReadDeadline(time.Now().Add(wait)) // the read says what is wrong
		text := make([]byte, 4096)
		n, _ := socket.Read(text)
		return string(text[:n])
	}

	var lock sync.RWMutex // held while the server hangs
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		lock.RLock()
		defer lock.RUnlock()
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	lock.Lock()
	ended, end := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer end()
	work.Go(func() {
		h := sdNotifier{address: strings.TrimPrefix(server.URL, "http://"), probe: auth.Generate(), log: zap.NewNop()}
		if err := h.run(t.Context(), ended); err != nil {
			t.Error(err)
		}
	})
	if got := told(patience); got != "STATUS=starting" {
		t.Errorf("at first it tells %q", got)
	}
	if got := told(5 * watchdog); got != "" {
		t.Errorf("it does not answer yet, and tells %q", got)
	}
	lock.Unlock()
	if got := told(patience); !strings.HasPrefix(got, "READY=1\n") {
		t.Errorf("once it answers it tells %q", got)
	}
	if got := told(patience); got != "WATCHDOG=1" {
		t.Errorf("as long as it answers it tells %q", got)
	}
	lock.Lock()
	quiet := false
	for stop := time.Now().Add(patience); !quiet && time.Now().Before(stop); {
		quiet = told(5*watchdog) == ""
	}
	lock.Unlock()
	if !quiet {
		t.Error("it hangs, and tells that it lives")
	}
	if got := told(patience); got != "WATCHDOG=1" {
		t.Errorf("when it answers again it tells %q", got)
	}
}
