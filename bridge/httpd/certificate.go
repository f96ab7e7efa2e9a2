package httpd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"nexus.internal/bridge/auth"
	"nexus.internal/protocol/safefile"
)

// maxPEM bounds the file of a certificate, and that of its key, in bytes.
const maxPEM = 1 << 20

// Certificate is that by which a server proves itself to clients on other machines, with its private key. It does not change.
type Certificate struct {
	leaf    *x509.Certificate
	config  *tls.Config
	address string // what the proof of a key is bound to (SPEC §6.5)
}

// ReadCertificate reads a certificate, with those of the authorities between it and one that clients know behind it, and its private key, both
// as PEM. Either file may be a link. It refuses a key that is not the certificate's, or that other users can read or could have put there,
// and a certificate that no client would accept at any time: one that names no host, or is not for servers.
func ReadCertificate(certFile, keyFile string) (*Certificate, error) {
	public, err := safefile.ReadLinked(certFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	private, err := safefile.ReadSecret(keyFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("read the key of the certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(public, private)
	if err != nil {
		return nil, fmt.Errorf("the certificate %s and its key %s: %w", certFile, keyFile, err)
	}
	leaf := pair.Leaf
	if len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		return nil, fmt.Errorf("the certificate %s names no host (subjectAltName), so no client accepts it", certFile)
	}
	usages := leaf.ExtKeyUsage
	if len(usages) > 0 && !slices.Contains(usages, x509.ExtKeyUsageServerAuth) && !slices.Contains(usages, x509.ExtKeyUsageAny) {
		return nil, fmt.Errorf("the certificate %s is not for servers (extendedKeyUsage), so no client accepts it", certFile)
	}
	return &Certificate{
		leaf: leaf, address: auth.CertificateAddress(leaf.Raw),
		config: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}},
	}, nil
}

// soon is how long before its end a certificate is warned of.
const soon = 7 * 24 * time.Hour

// Warning says that clients do not accept the certificate at that time, or will not in seven days; "" if they do.
func (c *Certificate) Warning(now time.Time) string {
	from, until := c.leaf.NotBefore.UTC(), c.leaf.NotAfter.UTC()
	switch {
	case now.Before(from):
		return "the certificate of the server is valid from " + from.Format(time.RFC3339) + " on: until then no client accepts it"
	case now.After(until):
		return "the certificate of the server ended at " + until.Format(time.RFC3339) + ": no client accepts it"
	case now.Add(soon).After(until):
		return "the certificate of the server ends at " + until.Format(time.RFC3339) + ": from then on no client accepts it"
	}
	return ""
}

// names reports whether the certificate is for the host of a Host header. The port may be any, as one before this machine may pass on
// another one, and a certificate names none.
func (c *Certificate) names(authority string) bool {
	host, _, err := net.SplitHostPort(authority)
	if addr, ok := errors.AsType[*net.AddrError](err); ok && addr.Err == "missing port in address" {
		host, err = authority, nil
	}
	return err == nil && host != "" && c.leaf.VerifyHostname(host) == nil
}
