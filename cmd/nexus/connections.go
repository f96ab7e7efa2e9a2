package main

import (
	"syscall"

	"nexus.internal/bridge/httpd"
)

// maxUnauthenticated is how many connections without a key may be open: at most a
// quarter of the files that this process may have open. Go has raised that to
// what the system lets it have.
func maxUnauthenticated() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return httpd.DefaultMaxUnauthenticated
	}
	return int(max(1, min(httpd.DefaultMaxUnauthenticated, files.Cur/4)))
}
