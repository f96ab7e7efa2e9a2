//go:build !linux

package main

import "nexus.internal/cmd/internal/cli"

// addChaos adds nothing: the attack needs Linux's signals, mounts and /proc.
func addChaos(*cli.App) {}
