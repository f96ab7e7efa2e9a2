//go:build !unix

package main

import "nexus.internal/bridge"

// maxStrangers is how many connections without a key may be open.
func maxStrangers() int { return bridge.DefaultMaxStrangers }
