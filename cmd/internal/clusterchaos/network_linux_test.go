package clusterchaos

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Machines reach each other by their links alone: a link that is cut loses all, in its direction, one that is slow or lossy brings all of a connection later. What was
// cut is whole again. Nothing is left of the devices.
func TestNetwork(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w, err := newNetwork(3)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		t.Logf("not done, as there are no network namespaces here: %v", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	at := address(1)
	there := &net.UDPAddr{IP: at[:], Port: 7000}
	var from, to *net.UDPConn
	if err := w.spaces[1].within(func() error { to, err = net.ListenUDP("udp", there); return err }); err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := w.spaces[0].within(func() error { from, err = net.ListenUDP("udp", nil); return err }); err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	n := 0
	// reaches sends one packet after another until one has come back, or that cannot be expected any more, and says how long that one took.
	reaches := func(within time.Duration) (took time.Duration, err error) {
		buffer := make([]byte, 100)
		for range 12 {
			n++
			text, began := fmt.Sprint(n), time.Now()
			if _, err := from.WriteToUDP([]byte(text), there); err != nil {
				return 0, err
			}
			for {
				if err := errors.Join(to.SetReadDeadline(began.Add(within)), from.SetReadDeadline(began.Add(within))); err != nil {
					return 0, err
				}
				size, back, err := to.ReadFromUDP(buffer)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					break
				}
				if err != nil {
					return 0, err
				}
				if _, err := to.WriteToUDP(buffer[:size], back); err != nil {
					return 0, err
				}
				if size, _, err = from.ReadFromUDP(buffer); err == nil && string(buffer[:size]) == text {
					return time.Since(began), nil
				}
			}
		}
		return 0, io.ErrNoProgress
	}
	const soon = 100 * time.Millisecond
	for _, c := range []struct {
		name     string
		machine  int
		fault    linkFault
		from, to bool
		reached  bool
	}{
		{"whole", 0, linkFault{}, true, true, true},
		{"cut", 0, linkFault{cut: true}, true, true, false},
		{"whole again", 0, linkFault{}, true, true, true},
		{"cut in one direction", 0, linkFault{cut: true}, true, false, false},
		{"cut in the other one", 0, linkFault{cut: true}, false, true, false},
		{"lossy", 0, linkFault{loss: 0.2}, true, true, true},
		{"all is lost", 0, linkFault{loss: 1}, true, true, false},
		{"another machine is cut off", 2, linkFault{cut: true}, true, true, true},
	} {
		w.set(0, linkFault{}, true, true)
		w.set(c.machine, c.fault, c.from, c.to)
		patience := soon
		if c.reached { // also on a busy machine
			patience = time.Second
		}
		if _, err := reaches(patience); (err == nil) != c.reached || err != nil && !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	w.set(2, linkFault{}, true, true)
	const delay = 50 * time.Millisecond
	w.set(0, linkFault{delay: delay}, true, true)
	if took, err := reaches(time.Minute); err != nil || took < 2*delay {
		t.Errorf("with a delay of %v each way it takes %v, %v", delay, took, err)
	}
	if _, err := net.InterfaceByName("cluster"); err == nil {
		t.Error("the device is among those of this process")
	}
}
