//go:build !linux && !darwin

package broker

import (
	"errors"
	"net"
)

// peerOf cannot tell here, so nobody is let in.
func peerOf(*net.UnixConn) (peer, error) {
	return peer{}, errors.New("this system does not say which process connected")
}
