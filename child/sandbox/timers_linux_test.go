package sandbox_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/child/sandbox"
	"nexus.internal/protocol/proctree"
)

func init() {
	if len(os.Args) > 2 && os.Args[2] == "coarse" {
		runtime.LockOSThread() // the first, which executes the program again
	}
	// timers tells how late the kernel may end a wait, in nanoseconds.
	roles["timers"] = func([]string) {
		slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		fmt.Println(slack, err)
	}
	// coarse has coarse timers, as a child, and says what a program says, unconfined and
	// confined.
	roles["coarse"] = func([]string) {
		proctree.ExecWithCoarseTimers()
		roles["timers"](nil)
		for _, c := range []sandbox.Confinement{sandbox.Unconfined, sandbox.Always} {
			p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: role("timers"), Rules: sandbox.Rules{Confinement: c, ReadOnly: []string{"/"}}})
			if err != nil {
				panic(err)
			}
			if _, err := io.Copy(os.Stdout, p.Stdout()); err != nil {
				panic(err)
			}
			p.Wait()
		}
	}
}

// The timers of a program are as exact as those of any, though the child's are coarse.
func TestTimersOfPrograms(t *testing.T) {
	argv := role("coarse")
	said, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if want := "1000000 <nil>\n50000 <nil>\n50000 <nil>\n"; string(said) != want || err != nil {
		t.Errorf("said %q, %v, want %q", said, err, want)
	}
}
