// Package certtest makes certificates for tests.
//
//	authority := certtest.New(t)
//	cert, key := authority.Files(t, nil, "127.0.0.1", "one.example") // for a server
//	authority.File                                                   // what a client trusts
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	File string // its own certificate, as PEM
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an authority of its own.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem")}
	own := template()
	own.IsCA, own.BasicConstraintsValid, own.KeyUsage, own.Subject = true, true, x509.KeyUsageCertSign, pkix.Name{CommonName: "an authority"}
	der, key := sign(t, own, own, nil)
	a.key = key
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	write(t, a.File, "CERTIFICATE", der)
	return a
}

// Files makes a certificate for a server with these names and addresses, valid for an hour, and its private key (0600), in a new directory.
// change may adapt it; it may be nil.
func (a *Authority) Files(t testing.TB, change func(*x509.Certificate), hosts ...string) (cert, key string) {
	t.Helper()
	own := template()
	own.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			own.IPAddresses = append(own.IPAddresses, ip)
		} else {
			own.DNSNames = append(own.DNSNames, host)
		}
	}
	if change != nil {
		change(own)
	}
	der, private := sign(t, own, a.cert, a.key)
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, cert, "CERTIFICATE", der)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, key, "PRIVATE KEY", pkcs8)
	return cert, key
}

func template() *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // of Reader there is no error
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature}
}

// sign makes a key and its certificate; by is the signer's key, nil for the certificate's own.
func sign(t testing.TB, own, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, own, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
