package clusterchaos

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nexus.internal/protocol/proctree"
)

// A process reads its clocks by clock_gettime of the page of code that the kernel maps into it (vDSO), without a system call. In a process
// that has just been started, before its first instruction, that function is replaced: by one that asks the kernel, and adds so many
// seconds to the wall clock. Monotonic clocks, other processes and the programs that it starts are not touched, and the program is
// the one that is shipped.

// liar is such a function, by architecture, with the seconds in eight bytes at the end of lie.
var liar = map[string]struct {
	code []byte
	lie  int // where the seconds are; a multiple of eight, so that the processor reads them whole
}{
	"amd64": {[]byte{
		0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 0x10, // jnz to ret: it is not CLOCK_REALTIME
		0x0f, 0x1f, 0x00, // nop
		0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0, // mov rcx, seconds
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3, // ret
	}, 16},
}

// clock is the wall clock of a process as it is told.
type clock struct {
	memory *os.File // of the process; opened before it may forbid that
	at     int64    // where the function is in it
}

// errNoLie says that clocks cannot be made to lie here.
var errNoLie = errors.New("the wall clock is that of the machine")

// startWithClock starts a command whose wall clock can be set, and is wrong by lie from its first instruction on.
func startWithClock(cmd *exec.Cmd, lie time.Duration) (*clock, error) {
	by, ok := liar[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("%w: there is no code for %s", errNoLie, runtime.GOARCH)
	}
	runtime.LockOSThread() // which traces the process
	defer runtime.UnlockOSThread()
	// A server with exact timers executes itself again, with another vDSO.
	proctree.CoarseTimers()
	defer proctree.ExactTimers()
	cmd.SysProcAttr.Ptrace = true // it stops before its first instruction
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
		_ = cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("start %s: it did not stop at its start", cmd.Path), err, cmd.Wait())
	}
	var at int64
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err == nil {
		at, err = clockFunction(memory, pid, len(by.code))
	}
	if err == nil {
		code := slices.Clone(by.code)
		copy(code[by.lie:], seconds(lie))
		_, err = unix.PtracePokeText(pid, uintptr(at), code)
	}
	if detached := unix.PtraceDetach(pid); detached != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(err, detached, memory.Close(), cmd.Wait())
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = memory.Close()
		return nil, errors.Join(fmt.Errorf("%w: %w", errNoLie, err), cmd.Wait())
	}
	return &clock{memory, at}, nil
}

// set has the wall clock of the process be that of the machine and so much. Of no clock it sets none. It is an error if the process has
// another function by now.
func (c *clock) set(lie time.Duration) error {
	if c == nil {
		return nil
	}
	by := liar[runtime.GOARCH]
	begins := make([]byte, by.lie)
	if _, err := c.memory.ReadAt(begins, c.at); err != nil || !bytes.Equal(begins, by.code[:by.lie]) {
		return errors.Join(errors.New("the wall clock of the process is that of the machine"), err)
	}
	_, err := c.memory.WriteAt(seconds(lie), c.at+int64(by.lie))
	return err
}

// close gives up a clock; nil is none.
func (c *clock) close() {
	if c != nil {
		_ = c.memory.Close()
	}
}

// seconds are those of a lie as the function has them.
func seconds(lie time.Duration) []byte {
	return binary.NativeEndian.AppendUint64(nil, uint64(int64(lie/time.Second)))
}

// clockFunction is where the process has clock_gettime in its memory, which must have so many bytes and be aligned as the code expects.
func clockFunction(memory *os.File, pid, size int) (at int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	var base, end int64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			if _, err := fmt.Sscanf(line, "%x-%x ", &base, &end); err != nil {
				return 0, fmt.Errorf("find the vDSO: %w", err)
			}
		}
	}
	if base == 0 {
		return 0, errors.New("there is no vDSO")
	}
	image := make([]byte, end-base)
	if _, err := memory.ReadAt(image, base); err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(size) && s.Value%8 == 0 {
			return base + int64(s.Value), nil //nolint:gosec // within the image
		}
	}
	return 0, errors.New("the vDSO has no clock_gettime that can be replaced")
}
