package accept_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/protocol/accept"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errNoSpace is what the system says once the watches of the user are used up.
var errNoSpace = &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("epoll_ctl", syscall.ENOSPC)}

// scripted is a listener that gives each error of errs, and then connections; at an error
// that is nil it gives one connection.
type scripted struct {
	errs   []error
	calls  int
	closed bool
}

func (s *scripted) Accept() (net.Conn, error) {
	if s.closed {
		return nil, fmt.Errorf("accept: %w", net.ErrClosed)
	}
	s.calls++
	if s.calls <= len(s.errs) && s.errs[s.calls-1] != nil {
		return nil, s.errs[s.calls-1]
	}
	ours, theirs := net.Pipe()
	return ours, theirs.Close()
}

func (s *scripted) Close() error   { s.closed = true; return nil }
func (s *scripted) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func repeat(err error, n int) (errs []error) {
	for range n {
		errs = append(errs, err)
	}
	return errs
}

// An error of the system ends no server: it waits longer after each, 1 s at most.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		ln := accept.Retry(&scripted{errs: repeat(errNoSpace, 10)}, zap.New(core))
		begun := time.Now()
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if got, want := time.Since(begun), 3275*time.Millisecond; got != want { // 5 ms + … + 640 ms + 1 s + 1 s
			t.Errorf("waited %s, want %s", got, want)
		}
		want := []string{"connections cannot be accepted", "connections are accepted again"}
		if diff := cmp.Diff(want, messages(logs)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func messages(logs *observer.ObservedLogs) (texts []string) {
	for _, entry := range logs.All() {
		texts = append(texts, entry.Message)
	}
	return texts
}

// Whoever makes every other connection fail cannot fill the log.
func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		for range 1000 {
			errs = append(errs, errNoSpace, nil)
		}
		core, logs := observer.New(zap.DebugLevel)
		ln := accept.Retry(&scripted{errs: errs}, zap.New(core))
		for range len(errs) / 2 {
			c, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			time.Sleep(115 * time.Millisecond) // in the bubble's time: 1000 failures in 2 minutes
		}
		if got := logs.Len(); got != 4 {
			t.Errorf("%d lines, want 2 a minute: %q", got, messages(logs))
		}
	})
}

// A stop does not wait for the next try.
func TestCloseEndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := accept.Retry(&scripted{errs: repeat(errNoSpace, 1000)}, zap.NewNop())
		ended := make(chan error)
		go func() {
			_, err := ln.Accept()
			ended <- err
		}()
		time.Sleep(10*time.Second + time.Millisecond) // in the bubble's time
		synctest.Wait()
		closed := time.Now()
		if err := errors.Join(ln.Close(), ln.Close()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(closed); waited != 0 {
			t.Errorf("Accept ended %s after Close", waited)
		}
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}
