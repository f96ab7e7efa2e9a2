package proctree

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CoarseTimers lets the kernel end each wait for a time up to CoarseTimer late, in threads that
// the caller's thread creates, and in processes that it starts. A thread of Go's runtime waits
// 20 µs, again and again, while anything runs: with the kernel's 50 µs of slack it takes half of
// the processor time of a send. The caller has locked its thread. Errors do not matter: timers
// stay exact.
func CoarseTimers() { setTimerSlack(CoarseTimer) }

// ExactTimers undoes CoarseTimers for what the caller's thread starts, which may be somebody
// else's program.
func ExactTimers() { setTimerSlack(exactTimer) }

// exactTimer is what the kernel gives a process by itself (init_task, timer_slack_ns).
const exactTimer = 50 * time.Microsecond

func setTimerSlack(d time.Duration) {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d.Nanoseconds()), 0, 0, 0)
}

// timerSlack is how late waits of the caller's thread may end; 0 if that is not known.
func timerSlack() time.Duration {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(slack)
}

// again in the environment of a process says that ExecWithCoarseTimers has started it.
const again = "NEXUS_COARSE_TIMERS"

// ExecWithCoarseTimers executes this program again, as the same process, with coarse timers in
// all its threads: those of the runtime are there before any code of ours. It returns if they
// are coarse, or cannot be. Only a program of which nothing has begun may call it, on its first
// thread: that one alone keeps the signal that the end of its parent is to send (Pdeathsig).
func ExecWithCoarseTimers() {
	if os.Getenv(again) != "" {
		_ = os.Unsetenv(again) // its own processes are no concern of it
		return
	}
	self, err := os.Executable()
	if err != nil || unix.Gettid() != os.Getpid() || timerSlack() >= CoarseTimer {
		return
	}
	CoarseTimers()
	_ = syscall.Exec(self, os.Args, append(os.Environ(), again+"=1"))
}
