package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/protocol/jsonrpc"
)

// ErrUnproved says that what listens could not prove that it has the key, which
// was therefore not sent: it is no nexus server, or one that has another key.
var ErrUnproved = errors.New("the server does not have this API key, which was not sent to it")

// ErrUntrusted says that what listens has not proved by a certificate to be the host that is meant. The key was not sent to it.
var ErrUntrusted = errors.New("the server's certificate is not accepted, and the API key was not sent to it")

const (
	proofTimeout = 30 * time.Second
	// shortTimeout bounds the handshake, and the proof, where there is another address to go to, and how long what was
	// sent there may go unacknowledged.
	shortTimeout = 10 * time.Second
	maxHealth    = 4 << 10 // bytes of GET /healthz
)

// keysUnknown is the error of a machine of a cluster that cannot prove the key as it does not know its cluster's keys yet: a NO_QUORUM, as it would
// answer if the key had been sent to it.
func keysUnknown() error {
	row := api.Errors[api.KindNoQuorum]
	return &RPCError{Code: int(row.Code), Message: row.Message, HTTPStatus: row.Status, RetryAfter: time.Second, Data: jsonrpc.ErrorData{
		Type:                string(api.KindNoQuorum),
		Details:             "the machine does not know the keys of its cluster, as it has not reached a majority of the machines yet, or a later version has written them; the API key was not sent to it",
		RecoverySuggestions: []string{"Send it again when a majority of the machines is there."},
	}}
}

// prover opens connections to servers that have the key, and to no others.
type prover struct {
	key auth.Key // zero for none: then none is sent
	dialing
}

// dialing is how servers are reached.
type dialing struct {
	authorities *x509.CertPool // that sign their certificates; nil for those that the system knows
	file        string         // that has them; "" for none
	several     bool           // there is another address for one that does not answer
	by          Dialer         // nil for a net.Dialer
}

func (d dialing) timeout() time.Duration {
	if d.several {
		return shortTimeout
	}
	return proofTimeout
}

// connect opens a connection, on which nothing is sent.
func (d dialing) connect(ctx context.Context, network, host string) (net.Conn, error) {
	if d.by != nil {
		return d.by.DialContext(ctx, network, host)
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	if d.several {
		dialer.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: shortTimeout, Interval: shortTimeout / 2, Count: 3}
		dialer.Control = func(_, _ string, raw syscall.RawConn) error { return lostAfter(2*shortTimeout, raw) }
	}
	return dialer.DialContext(ctx, network, host)
}

// dialTLS is dial for a server that proves itself by its certificate, too.
func (p *prover) dialTLS(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := p.connect(ctx, network, host)
	if err != nil {
		return nil, &unsentError{err}
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	encrypted := tls.Client(conn, &tls.Config{RootCAs: p.authorities, ServerName: name, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	limited, cancel := context.WithTimeout(ctx, p.timeout())
	defer cancel()
	if err := encrypted.HandshakeContext(limited); err != nil {
		conn.Close()
		return nil, &unsentError{p.untrusted(host, err)}
	}
	return p.proved(ctx, encrypted, host)
}

// untrusted says what is wrong with a handshake.
func (d dialing) untrusted(host string, err error) error {
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return fmt.Errorf("%w: what listens at %s does not speak TLS: %w", ErrUntrusted, host, plain)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
		return fmt.Errorf("handshake with %s: %w", host, err)
	}
	way := ""
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		way = "; name the file of the server's authority (--ca, NEXUS_CA)"
		if d.file != "" {
			way = "; " + d.file + " has no authority that signed it"
		}
	}
	return fmt.Errorf("%w: %s: %w%s", ErrUntrusted, host, err, way)
}

// dial connects, and has the server prove that it has the key (SPEC §6.5) before
// anything else is sent. Each connection is asked: by the next one, somebody else
// may listen.
func (p *prover) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := p.connect(ctx, network, host)
	if err != nil {
		return nil, &unsentError{err}
	}
	return p.proved(ctx, conn, host)
}

// proved is the connection, once the server has proved on it that it has the key.
func (p *prover) proved(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	if p.key.IsZero() {
		return conn, nil
	}
	if err := challenge(ctx, conn, host, p.key, p.timeout()); err != nil {
		conn.Close()
		return nil, &unsentError{err}
	}
	return conn, nil
}

func challenge(ctx context.Context, conn net.Conn, host string, key auth.Key, timeout time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	health, err := ask(conn, host, url.Values{"challenge": {auth.Nonce()}, "key": {key.ID()}}, key)
	if !stop() { // ctx has ended, and its deadline may come after ours
		return context.Cause(ctx)
	}
	switch {
	case err != nil:
		return err
	case health.Service != api.Service:
		return fmt.Errorf("%w: %w", ErrUnproved, ErrNotNexus)
	case health.Proof == "" && health.KeysUnknown:
		return keysUnknown()
	case health.Proof == "":
		return ErrUnproved
	}
	return conn.SetDeadline(time.Time{})
}

// ask asks for the server's health. A proof that is none is left out.
func ask(conn net.Conn, host string, query url.Values, key auth.Key) (health api.Health, err error) {
	if _, err := fmt.Fprintf(conn, "GET /healthz?%s HTTP/1.1\r\nHost: %s\r\n\r\n", query.Encode(), host); err != nil {
		return health, err
	}
	in := bufio.NewReader(conn)
	if _, err := in.Peek(1); err != nil { // it left, perhaps at its end
		return health, err
	}
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return health, fmt.Errorf("%w: %w: %w", ErrUnproved, ErrNotNexus, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxHealth))
	if err != nil {
		return health, err
	}
	if response.StatusCode == http.StatusBadRequest || response.StatusCode == http.StatusForbidden {
		return health, fmt.Errorf("%w: %w", ErrUnproved, decode("healthz", body, response.StatusCode, nil)) // it says why
	}
	if json.Unmarshal(body, &health) != nil || response.Close || in.Buffered() > 0 {
		return api.Health{}, nil
	}
	address := conn.RemoteAddr().String()
	if encrypted, ok := conn.(*tls.Conn); ok {
		address = auth.CertificateAddress(encrypted.ConnectionState().PeerCertificates[0].Raw)
	}
	if !key.Proves(query.Get("challenge"), address, health.Proof) {
		health.Proof = ""
	}
	return health, nil
}
