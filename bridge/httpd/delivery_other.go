//go:build !linux

package httpd

import "net"

// resetKeepsAnswers: a reset may take from the client what it has received and not read.
const resetKeepsAnswers = false

// delivery is not known: the system goes on delivering after the plain close.
func delivery(net.Conn) (acked uint64, all bool) { return 0, true }
