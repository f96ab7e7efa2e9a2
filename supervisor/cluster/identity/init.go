package identity

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor/cluster"
)

const (
	// signerFile is the authority's private key, which no machine needs.
	signerFile = "ca-key.pem"
	// valid is how long a certificate is.
	valid = 10 * 365 * 24 * time.Hour
	// skew is by how much the clocks of machines may differ.
	skew = time.Hour
)

// Address is a machine, and where the others reach it: HOST:PORT.
type Address struct{ Machine, Listen string }

// ParseAddress reads MACHINE=HOST:PORT.
func ParseAddress(text string) (Address, error) {
	name, listen, ok := strings.Cut(text, "=")
	if !ok {
		return Address{}, fmt.Errorf("a machine is MACHINE=HOST:PORT, not %.80q", text)
	}
	if err := cluster.CheckName("machine", name); err != nil {
		return Address{}, err
	}
	return Address{name, listen}, cluster.CheckReached(listen)
}

// DefaultName is the name of a cluster that was given none.
const DefaultName = "nexus"

// Cluster is what Init makes directories for.
type Cluster struct {
	Name     string // "" for the one that the directory has, or else DefaultName
	Machines []Address
	// Without are machines of it whose directories are removed.
	Without []string
}

// Init makes, in dir, a directory for each machine, to be copied there, and the cluster's authority. If dir has a cluster already, which
// must have that name if one is given, its authority stays: machines are added, and those that are there get a new certificate and the
// address that is given; those of Without must be there. It returns all machines of the cluster, by name.
func Init(dir string, c Cluster) ([]Spec, error) {
	if err := safefile.CheckTrusted(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	before, err := machines(dir)
	if err != nil {
		return nil, err
	}
	if c.Name == "" && len(before) > 0 {
		c.Name = before[0].Cluster
	}
	c.Name = cmp.Or(c.Name, DefaultName)
	if err := cluster.CheckName("cluster", c.Name); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, s := range before {
		if s.Cluster != c.Name {
			return nil, fmt.Errorf("%s is of the cluster %s, not of %s", dir, s.Cluster, c.Name)
		}
		all[s.Machine] = s.Listen
	}
	for _, machine := range c.Without {
		if _, there := all[machine]; !there {
			return nil, fmt.Errorf("%s has no machine %s that could be left out", dir, machine)
		}
		delete(all, machine)
	}
	given := map[string]bool{}
	for _, m := range c.Machines {
		if given[m.Machine] {
			return nil, fmt.Errorf("the machine %s is named twice", m.Machine)
		}
		if slices.Contains(c.Without, m.Machine) {
			return nil, fmt.Errorf("the machine %s is named, and left out, too", m.Machine)
		}
		given[m.Machine], all[m.Machine] = true, m.Listen
	}
	specs, err := specsOf(c.Name, all)
	if err != nil {
		return nil, err
	}
	a, err := openAuthority(dir, c.Name, len(before) > 0)
	if err != nil {
		return nil, err
	}
	for _, s := range specs {
		if err := a.machine(filepath.Join(dir, s.Machine), s, given[s.Machine]); err != nil {
			return nil, err
		}
	}
	for _, machine := range c.Without {
		if err := os.RemoveAll(filepath.Join(dir, machine)); err != nil {
			return nil, err
		}
	}
	return specs, safefile.SyncDir(dir)
}

// specsOf are machines with their addresses, by name.
func specsOf(name string, all map[string]string) (specs []Spec, err error) {
	var join []string
	for machine, listen := range all {
		if slices.Contains(join, listen) {
			return nil, fmt.Errorf("two machines listen at %s", listen)
		}
		join = append(join, listen)
		specs = append(specs, Spec{Cluster: name, Machine: machine, Listen: listen})
	}
	if err := cluster.CheckJoin(join); err != nil {
		return nil, err
	}
	slices.SortFunc(specs, func(a, b Spec) int { return strings.Compare(a.Machine, b.Machine) })
	join = join[:0]
	for _, s := range specs {
		join = append(join, s.Listen)
	}
	for i := range specs {
		specs[i].Join = join
	}
	return specs, nil
}

// MadeIn is the directory of Init in which that of a machine lies still, with the files of the others; "" if it lies in
// another one, as one that was copied to its machine does.
func MadeIn(machine string) string {
	above := filepath.Dir(machine)
	if _, err := os.Lstat(filepath.Join(above, signerFile)); err == nil {
		return above
	}
	// The authority's key may have been taken away: then its certificate is the one that the machine has.
	const most = 64 << 10 // bytes
	own, err := safefile.Read(filepath.Join(machine, authorityFile), most)
	if err != nil || len(own) == 0 {
		return ""
	}
	if its, err := safefile.Read(filepath.Join(above, authorityFile), most); err != nil || !bytes.Equal(its, own) {
		return ""
	}
	return above
}

// machines are those that dir has.
func machines(dir string) (all []Spec, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.Name() == authorityFile || e.Name() == signerFile {
			continue
		}
		s, err := Read(filepath.Join(dir, e.Name()))
		if err != nil || s.Machine != e.Name() {
			return nil, fmt.Errorf("%s has %s, which nexus cluster init did not make: name a directory that is empty or not there", dir, e.Name())
		}
		all = append(all, s)
	}
	return all, nil
}

// authority signs certificates.
type authority struct {
	text []byte // its certificate, as PEM
	cert *x509.Certificate
	key  crypto.Signer
}

// openAuthority reads the authority that dir has, or makes one.
func openAuthority(dir, name string, has bool) (*authority, error) {
	a := &authority{}
	if has {
		for file, check := range map[string]func(path string) error{authorityFile: safefile.CheckTrusted, signerFile: safefile.CheckSecret} {
			if err := check(filepath.Join(dir, file)); err != nil {
				return nil, err
			}
		}
		text, err := safefile.Read(filepath.Join(dir, authorityFile), maxBytes)
		if err != nil {
			return nil, err
		}
		private, err := safefile.Read(filepath.Join(dir, signerFile), maxBytes)
		if err != nil {
			return nil, err
		}
		return a, a.parse(text, private)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "nexus cluster " + name}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	text, private, err := a.sign(template)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(write(dir, signerFile, private), write(dir, authorityFile, text)); err != nil {
		return nil, err
	}
	return a, a.parse(text, private)
}

func (a *authority) parse(text, private []byte) error {
	cert, key := der(text), der(private)
	var err error
	if a.cert, err = x509.ParseCertificate(cert); err != nil {
		return fmt.Errorf("the authority's certificate: %w", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("the authority's key: %w", err)
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return errors.New("the authority's key signs nothing")
	}
	a.text, a.key = text, signer
	return nil
}

// der is the first block of PEM; nil without one.
func der(text []byte) []byte {
	if block, _ := pem.Decode(text); block != nil {
		return block.Bytes
	}
	return nil
}

// machine writes the directory of a machine: its certificate as well, if it gets one.
func (a *authority) machine(dir string, s Spec, certify bool) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(s, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	if certify {
		host, _, err := net.SplitHostPort(s.Listen)
		if err != nil {
			return err
		}
		template := &x509.Certificate{Subject: pkix.Name{CommonName: s.Machine}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = []net.IP{ip}
		} else {
			template.DNSNames = []string{host}
		}
		cert, private, err := a.sign(template)
		if err != nil {
			return err
		}
		if err := errors.Join(write(dir, keyFile, private), write(dir, certFile, cert), write(dir, authorityFile, a.text)); err != nil {
			return err
		}
	}
	return write(dir, specFile, append(text, '\n')) // last: the machine is there by it
}

// sign makes a key and a certificate of it, by the authority, or by itself while there is none.
func (a *authority) sign(template *x509.Certificate) (cert, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-skew), time.Now().Add(valid)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), nil
}

func write(dir, name string, text []byte) error {
	return safefile.Replace(filepath.Join(dir, name), text, true)
}
