package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
)

// ErrUnproved says that what listens could not prove that it has the key, which
// was therefore not sent: it is no nexus server, or one that has another key.
var ErrUnproved = errors.New("the server does not have this API key, which was not sent to it")

const (
	proofTimeout = 30 * time.Second
	maxHealth    = 4 << 10 // bytes of GET /healthz
)

// prover opens connections to servers that have the key, and to no others.
type prover struct {
	key    auth.Key // zero for none: then none is sent
	dialer net.Dialer
}

// dial connects, and has the server prove that it has the key (SPEC §6.5) before
// anything else is sent. Each connection is asked: by the next one, somebody else
// may listen.
func (p *prover) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := p.dialer.DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	if p.key.IsZero() {
		return conn, nil
	}
	if err := challenge(ctx, conn, host, p.key); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func challenge(ctx context.Context, conn net.Conn, host string, key auth.Key) error {
	if err := conn.SetDeadline(time.Now().Add(proofTimeout)); err != nil {
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
	if json.Unmarshal(body, &health) != nil || response.Close || in.Buffered() > 0 {
		return api.Health{}, nil
	}
	if !key.Proves(query.Get("challenge"), conn.RemoteAddr().String(), health.Proof) {
		health.Proof = ""
	}
	return health, nil
}
