package redact

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
)

// ScrubError says why a request to a service had no answer, in our words and the
// system's: nothing of what the other side sent. It is for a log. Err is not nil.
func ScrubError(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e.Error()
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "it took too long"
	case untrusted:
		return "its certificate is not to be trusted"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection broke off"
	default:
		return "it does not answer as HTTP does"
	}
}
