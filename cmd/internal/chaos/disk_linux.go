package chaos

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// diskSize is how much the home may hold, in bytes: a fixed part, and what the
// sessions and events of each agent grow by.
func diskSize(agents int, long time.Duration) uint64 {
	return 64<<20 + uint64(float64(agents)*long.Minutes()*(3<<20))
}

// maxFill is the most that is written to fill a disk, in bytes: a tmpfs is memory.
const maxFill = 1 << 30

// OnDisk runs this program again, with args, in a mount namespace of its own,
// where [Mount] may mount: as root, or in a user namespace. With network it has a network
// namespace of its own, too, and may make further ones and change the memory of processes that it starts. The mount is gone
// with the last process there, however that ends, and that program is killed when
// this process ends. Its exit status is returned;
// the error says that there can be no such namespace.
func OnDisk(ctx context.Context, args []string, network bool) (status int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread() // the parent's death is that of this thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
		if network {
			cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, unix.CAP_NET_ADMIN, unix.CAP_SYS_PTRACE)
		}
	}
	if network {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	interrupted := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(os.Interrupt) })
	defer interrupted()
	_ = cmd.Wait() // the status tells
	return cmd.ProcessState.ExitCode(), nil
}

// Mount mounts a file system at dir, with room for so many agents for so long,
// and goes on as this program with args, without the right to mount. It returns
// only an error.
func Mount(dir string, agents int, long time.Duration, args []string) error {
	runtime.LockOSThread() // capabilities are a thread's
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("nexus-chaos", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0700", diskSize(agents, long))); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop the right to mount: %w", err)
	}
	// The one who is to hear of our parent's end is the thread that goes on.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with our parent: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, append([]string{os.Args[0]}, args...), os.Environ())
}
