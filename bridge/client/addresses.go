package client

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"nexus.internal/bridge/auth"
	"nexus.internal/protocol/safefile"
)

// retriesOfSeveral is DefaultRetries of a client that has several addresses: with the pauses 10 to 20 s, in which
// another machine takes over the agents of one that is lost.
const retriesOfSeveral = 8

// silence is how long a stream of a server may be silent while there are other addresses: a server says something each 15 s.
const silence = time.Minute

// maxCA bounds the file of authorities, in bytes.
const maxCA = 1 << 20

// CheckURLs reads the addresses of a server, with commas between them, as in https://a.example:8765,https://b.example:8765. Each is https,
// or http on a loopback address, without a path.
func CheckURLs(text string) (bases []string, err error) {
	for one := range strings.SplitSeq(text, ",") {
		u, err := CheckURL(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		if port, err := strconv.Atoi(cmp.Or(u.Port(), "80")); err != nil || port < 1 || port > 65535 {
			return nil, fmt.Errorf("server URL %q: the port must be from 1 to 65535", one)
		}
		bases = append(bases, u.Scheme+"://"+u.Host)
	}
	return bases, nil
}

// CheckURL reads the address of a server: https, or http on a loopback address, without a path.
func CheckURL(text string) (*url.URL, error) {
	if host, _, err := net.SplitHostPort(text); err == nil && !strings.Contains(text, "/") {
		scheme := "https"
		if loopback(host) {
			scheme = "http"
		}
		return nil, fmt.Errorf("server URL %q: write %s://%s", text, scheme, text)
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("server URL: %w", err)
	}
	known := u.Scheme == "https" && u.Hostname() != "" || u.Scheme == "http" && loopback(u.Hostname())
	if !known || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("server URL %q: want http://127.0.0.1:PORT, or https://HOST:PORT on another machine", text)
	}
	return u, nil
}

// PlainPort is the port of a URL which is one address at http, of a server of this machine; false for addresses at https, and several.
func PlainPort(url string) (port int, plain bool) {
	u, err := CheckURL(strings.TrimSpace(url))
	if err != nil || u.Scheme != "http" {
		return 0, false
	}
	port, err = strconv.Atoi(cmp.Or(u.Port(), "80"))
	return port, err == nil
}

// lookupAt is where the key for servers at these addresses is looked for: a home's key files are of its own server, which is called at
// http. Without a port in l, they are those of the first address.
func lookupAt(l *auth.Lookup, bases []string) *auth.Lookup {
	if l == nil {
		return nil
	}
	own := *l
	if slices.ContainsFunc(bases, func(base string) bool { return strings.HasPrefix(base, "https:") }) {
		own.Home = ""
	} else if port, plain := PlainPort(bases[0]); plain && own.Port == 0 {
		own.Port = port
	}
	return &own
}

func loopback(host string) bool {
	return host == "127.0.0.1" || host == "localhost" || host == "::1"
}

// authorities are those of a file; nil for "": those that the system knows.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := safefile.ReadLinked(file, maxCA)
	if err != nil {
		return nil, fmt.Errorf("read the authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the authorities: %s has no certificate (PEM)", file)
	}
	return pool, nil
}

// place is the address that is called now.
type place struct {
	base string // without a slash at its end
	at   int    // in Client.bases
}

// next has the address after a place called, unless there is none, or another request has found that before. It reports whether there is one.
func (c *Client) next(from *place) bool {
	if len(c.bases) < 2 {
		return false
	}
	at := (from.at + 1) % len(c.bases)
	c.place.CompareAndSwap(from, &place{c.bases[at], at})
	return true
}

// anywhere asks once, or, if there are several addresses, as again does.
func (c *Client) anywhere(ctx context.Context, ask func() error) error {
	if len(c.bases) < 2 {
		return ask()
	}
	return c.again(ctx, true, ask)
}

// unsentError says that no connection was had on which a request could have been sent.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

func unsent(err error) bool {
	_, ok := errors.AsType[*unsentError](err)
	return ok
}

// heard is the body of a stream, which is closed when it is silent for too long.
type heard struct {
	io.ReadCloser
	timer *time.Timer
}

// hear has a stream end that is silent for too long, if there is another address to go on at.
func (c *Client) hear(body io.ReadCloser) io.ReadCloser {
	if len(c.bases) < 2 {
		return body
	}
	return &heard{body, time.AfterFunc(silence, func() { _ = body.Close() })}
}

func (h *heard) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.timer.Reset(silence)
	return n, err
}

func (h *heard) Close() error {
	h.timer.Stop()
	return h.ReadCloser.Close()
}
