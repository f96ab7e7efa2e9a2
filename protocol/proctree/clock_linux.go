package proctree

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUClock is how long a process has used a processor, its ended threads included and its
// children not, to the nanosecond: clock_getcpuclockid(3). It costs a twentieth of ReadStat.
func CPUClock(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduler, &ts); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}
