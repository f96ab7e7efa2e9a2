//go:build unix

package cli

import "syscall"

// detached puts the server into a session of its own, so that what ends our
// terminal does not end it.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
