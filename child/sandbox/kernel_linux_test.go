package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/sandbox/sandboxtest"
)

// kernel runs programs that may change all, or what the kernel has, and try to open switches of the kernel
// and of their reaper.
func kernel(args []string) {
	work := filepath.Join(args[0], "work")
	if args[1] == "bare" {
		must(sandboxtest.WithoutNamespaces())
	}
	for _, granted := range []string{"/", "/proc /sys", "/proc/self"} {
		rules := sandbox.Rules{Confinement: sandbox.Always, ReadWrite: append(strings.Fields(granted), work), ReadOnly: []string{role("")[0]}}
		if granted == "/proc/self" { // what is named below them is granted
			rules.ReadWrite[0] = fmt.Sprintf("/proc/%d", os.Getpid())
		}
		fmt.Printf("%s: %s", granted, ran(rules, work, `
			try() { if ( : >> "$2" ) 2>/dev/null; then echo -n "$1 "; fi; }
			try reaper /proc/$PPID/oom_score_adj; try machine /proc/sys/vm/swappiness; try pattern /proc/sys/kernel/core_pattern
			try suspend /sys/power/state; try mode /sys/kernel/profiling; try granted /proc/`+fmt.Sprint(os.Getpid())+`/oom_score_adj
			echo x > new && grep -q Name /proc/self/status 2>/dev/null && echo reads`)+"\n")
	}
}

// A program that may change everything, or /proc as a whole, changes nothing of the kernel and of processes
// outside: as root's it had the kernel run a program outside of its walls (core_pattern), and each user's could offer the
// server to the kernel where memory runs out.
func TestKernelIsNotGranted(t *testing.T) {
	for _, uid := range []uint32{0, 65534} {
		for _, how := range []string{"views", "bare"} {
			if os.Getuid() != 0 && uid == 0 {
				continue // an ordinary user's row says it
			}
			want := "/: reads\n/proc /sys: reads\n/proc/self: granted\n"
			if diff := cmp.Diff(want, asUser(t, uid, "kernel", how)); diff != "" {
				t.Errorf("user %d, %s: %s", uid, how, diff)
			}
		}
	}
}
