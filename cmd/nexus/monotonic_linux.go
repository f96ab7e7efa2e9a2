package main

import "golang.org/x/sys/unix"

// monotonicMicroseconds is the time of CLOCK_MONOTONIC, by which systemd tells a reload
// from an earlier one.
func monotonicMicroseconds() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it cannot fail for this clock
	return now.Nano() / 1000
}
