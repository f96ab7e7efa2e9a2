package proctree_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

func init() {
	roles["timers"] = func() {
		proctree.ExecWithCoarseTimers()
		var death int32
		if err := unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&death)), 0, 0, 0); err != nil {
			panic(err)
		}
		fmt.Println("death", death)
		begun := make(chan bool)
		for range 3 {
			go func() {
				runtime.LockOSThread()
				fmt.Println(timerSlack(), os.Getenv("NEXUS_COARSE_TIMERS"))
				begun <- true
				select {} // keeps the thread
			}()
			<-begun
		}
		go func() {
			runtime.LockOSThread()
			proctree.ExactTimers()
			spawn(os.Stdout, "slack", nil)
			begun <- true
			select {}
		}()
		<-begun
		stay("here")
	}
	roles["slack"] = func() { fmt.Println(timerSlack()) }
}

func timerSlack() int {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		panic(err)
	}
	return slack
}

// All threads of a program have coarse timers, also those of the runtime that are there before
// main; it is executed again once, and stays the process that its parent's end is told. What is started with exact timers has these.
func TestCoarseTimers(t *testing.T) {
	_, _, lines := start(t, "timers", &syscall.SysProcAttr{Pdeathsig: syscall.SIGURG}, 6)
	slices.Sort(lines)
	if want := []string{"1000000 ", "1000000 ", "1000000 ", "50000", "death 23", "here"}; !slices.Equal(lines, want) {
		t.Errorf("slacks %q, want %q", lines, want)
	}
}
