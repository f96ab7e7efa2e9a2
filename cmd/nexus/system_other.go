//go:build !linux

package main

import "nexus.internal/cmd/internal/cli"

// addChaos adds nothing: the attack needs Linux's signals, mounts and /proc.
func addChaos(*cli.App) {}

// monotonicMicroseconds is 0 where there is no systemd.
func monotonicMicroseconds() int64 { return 0 }

// roomForThreads knows nothing here: there seems to be room.
func roomForThreads(int) error { return nil }
