package httpd

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/protocol/accept"
	"nexus.internal/protocol/jsonrpc"
)

// ServeTLS is Serve for clients on other machines: they speak TLS, and the server proves itself by AccessOptions.Certificate, which is
// required then. Connections keep the certificate that they began with. It may be called once, beside Serve.
func (s *Server) ServeTLS(ln net.Listener) error {
	return s.serve(listener{Listener: accept.Retry(ln, s.log), limiter: s.conns, remote: s})
}

// encrypt has a connection speak TLS from its first byte on. The handshake is part of the first Read, so it has the time of a request.
func (l listener) encrypt(one *conn) {
	one.remote = l.remote
	one.certificate = l.remote.access.Load().Certificate
	one.Conn = tls.Server(one.raw, one.certificate.config)
}

// certificate is that of the connection by which a client on another machine has sent the request; nil for one on this machine.
func (x *request) certificate() *Certificate {
	if c := connOf(x.r.Context()); c != nil {
		return c.certificate
	}
	return nil
}

// base is where the client reaches the server, as in https://one.example:8443; "" for one on this machine.
func (x *request) base() string {
	if x.certificate() == nil {
		return ""
	}
	return "https://" + x.r.Host // which was checked
}

var wantsTLS = apiError(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
	"this port speaks TLS", "Use https:// in the server's address.")

// endHandshake is what Read returns to net/http after err of a connection that speaks TLS. If there was no handshake, nothing can be
// answered, but to a client that speaks HTTP without TLS.
func (c *conn) endHandshake(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if over, ok := c.Conn.(*tls.Conn); !ok || over.ConnectionState().HandshakeComplete {
		return err
	}
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && looksLikeHTTP(plain.RecordHeader[:]) && !c.refused.Swap(true) {
		_ = c.raw.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.raw.Write(rawResponse(wantsTLS))
	}
	if !errors.Is(err, io.EOF) && c.remote.o.Lines.Request(auth.Grant{}, 1, "tls handshake") {
		c.remote.accessLog.Warn("tls handshake", zap.Stringer("remote", c.raw.RemoteAddr()), zap.Error(err))
	}
	return errHungUp
}

// looksLikeHTTP reports whether the first bytes of a connection begin a request without TLS.
func looksLikeHTTP(first []byte) bool {
	for _, method := range []string{"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "OPTIONS ", "PATCH "} {
		if n := min(len(method), len(first)); bytes.Equal(first[:n], []byte(method[:n])) {
			return true
		}
	}
	return false
}
