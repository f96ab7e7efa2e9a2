//go:build amd64 || arm64 || riscv64

package sandbox_test

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The numbers of calls are those of processors that there is a filter for.
func TestCalls(t *testing.T) {
	calls := map[string]int{
		"io_uring_setup": unix.SYS_IO_URING_SETUP, "ptrace": unix.SYS_PTRACE, "bpf": unix.SYS_BPF, "unshare": unix.SYS_UNSHARE,
		"add_key": unix.SYS_ADD_KEY, "accept": unix.SYS_ACCEPT, "clone3": unix.SYS_CLONE3, "getpid": unix.SYS_GETPID,
		"open_tree": unix.SYS_OPEN_TREE, "open_tree_attr": unix.SYS_OPEN_TREE_ATTR,
		"listmount": unix.SYS_LISTMOUNT, "statmount": unix.SYS_STATMOUNT, "pidfd_open": unix.SYS_PIDFD_OPEN, "quotactl_fd": unix.SYS_QUOTACTL_FD,
		"memfd_secret": unix.SYS_MEMFD_SECRET, "memfd_create": unix.SYS_MEMFD_CREATE,
	}
	wants := map[string]string{
		"io_uring_setup": "false function not implemented", "ptrace": "false operation not permitted",
		"bpf": "false operation not permitted", "unshare": "false operation not permitted", "accept": "false permission denied",
		"add_key": "false operation not permitted", "clone3": "false function not implemented", "getpid": "true errno 0",
		"open_tree": "false operation not permitted", "open_tree_attr": "false operation not permitted",
		"pidfd_open": "false function not implemented", "listmount": "false function not implemented", "statmount": "false function not implemented", "quotactl_fd": "false operation not permitted",
		"memfd_secret": "false function not implemented", "memfd_create": "false bad address",
	}
	p := newPlace(t)
	for name, number := range calls {
		text, _ := output(t, p.sandboxed(), p.work, role("calls", strconv.Itoa(number))...)
		if strings.TrimSpace(text) != wants[name] {
			t.Errorf("%s: %q, want %q", name, text, wants[name])
		}
	}
	// Without processes opened by ID, programs wait for, find and end their own.
	if text, exit := output(t, p.sandboxed(), p.work, role("children")...); text != "<nil> <nil> signal: killed\n" || exit.Code != 0 {
		t.Errorf("children: %q, exit %+v", text, exit)
	}
	// The second interface of amd64 would get by the numbers.
	text, _ := output(t, p.sandboxed(), p.work, role("calls", strconv.Itoa(0x40000000|unix.SYS_GETPID))...)
	if want := "false function not implemented\n"; text != want {
		t.Errorf("x32: %q, want %q", text, want)
	}
}
