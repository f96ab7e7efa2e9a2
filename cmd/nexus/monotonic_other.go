//go:build !linux

package main

// monotonicMicroseconds is 0 where there is no systemd.
func monotonicMicroseconds() int64 { return 0 }
