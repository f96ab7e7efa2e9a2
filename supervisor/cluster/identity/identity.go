package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

// Files of a machine's directory.
const (
	specFile      = "machine.json"
	authorityFile = "ca.pem"
	certFile      = "certificate.pem"
	keyFile       = "key.pem"

	maxBytes = 64 << 10 // of each
)

// Spec says which machine a directory is for.
type Spec struct {
	Cluster string   `json:"cluster"`
	Machine string   `json:"machine"`
	Listen  string   `json:"listen"` // HOST:PORT
	Join    []string `json:"join"`   // of all machines, HOST:PORT
}

// Read reads which machine the directory is for. It refuses files that another user than ours and root may have put there, as TLS does.
func Read(dir string) (Spec, error) {
	var s Spec
	path := filepath.Join(dir, specFile)
	if err := safefile.CheckTrusted(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	text, err := safefile.ReadTrusted(path, maxBytes)
	if err == nil {
		if err = strict.Unmarshal(text, &s, strict.RejectUnknown); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s is not of a machine, as there is no %s in it: nexus cluster init makes one", dir, specFile)
	}
	return s, err
}

// TLS is how the machine that the directory is for proves itself, and what it asks of the others. The certificate names the machine,
// which is refused by that name once it is removed: it is for no other one. The key is refused if others may know it.
func TLS(dir, machine string) (*tls.Config, error) {
	if err := safefile.CheckTrusted(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // then the first file says so
		return nil, fmt.Errorf("the certificates of the machine: %w", err)
	}
	authority, err := safefile.ReadTrusted(filepath.Join(dir, authorityFile), maxBytes)
	if err != nil {
		return nil, fmt.Errorf("the certificates of the machine: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("the certificates of the machine: %s has none", filepath.Join(dir, authorityFile))
	}
	private, err := safefile.ReadSecret(filepath.Join(dir, keyFile), maxBytes)
	if err != nil {
		return nil, fmt.Errorf("the certificates of the machine: %w", err)
	}
	public, err := safefile.ReadTrusted(filepath.Join(dir, certFile), maxBytes)
	if err != nil {
		return nil, fmt.Errorf("the certificates of the machine: %w", err)
	}
	pair, err := tls.X509KeyPair(public, private)
	if err != nil {
		return nil, fmt.Errorf("the certificates of the machine in %s: %w", dir, err)
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return nil, fmt.Errorf("%s is no certificate of this cluster: %w", filepath.Join(dir, certFile), err)
	}
	if name := pair.Leaf.Subject.CommonName; name != machine {
		return nil, fmt.Errorf("%s is of the machine %s, not of %s: nexus cluster init makes one", filepath.Join(dir, certFile), name, machine)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{pair}}, nil
}

// Certified is when a machine got its certificate, to the second.
func Certified(certificate *x509.Certificate) time.Time { return certificate.NotBefore.Add(skew) }
