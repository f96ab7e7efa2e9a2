package clusterchaos

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"nexus.internal/protocol/proctree"
)

// asClock has this program tell the time, once for each line that it reads.
const asClock = "NEXUS_TEST_CLOCK"

func init() { runtime.LockOSThread() } // see proctree.ExecWithCoarseTimers

func TestMain(m *testing.M) {
	if os.Getenv(asClock) != "" {
		proctree.ExecWithCoarseTimers() // as a server does
		began := time.Now()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Println(time.Now().Unix(), time.Since(began) < time.Hour)
		}
		return
	}
	os.Exit(m.Run())
}

// The wall clock of one process lies as it is told, forwards and back; its monotonic clock goes on, and our own clock is as it was.
func TestClock(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asClock+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := startWithClock(cmd, -time.Hour)
	if runtime.GOARCH != "amd64" {
		if err == nil {
			t.Error("there is no code for this machine, and it is no error")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	lines := bufio.NewReader(out)
	for i, lie := range []time.Duration{-time.Hour, 0, 5 * time.Hour, -30 * 24 * time.Hour, 0} {
		if i > 0 {
			if err := c.set(lie); err != nil {
				t.Fatal(err)
			}
		}
		before := time.Now().Unix()
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		var told int64
		var steady bool
		if _, err := fmt.Fscanln(lines, &told, &steady); err != nil {
			t.Fatal(err)
		}
		told -= int64(lie / time.Second)
		if after := time.Now().Unix(); told < before || told > after || !steady {
			t.Errorf("with a lie of %v it tells %d seconds, from %d to %d; steady: %t", lie, told, before, after, steady)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
