package engine

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"nexus.internal/supervisor/cluster"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*Server).StartRouting")) // see Engine.start
}

// What is wrong with the options is said, and nothing is started.
func TestRefusedOptions(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := Options{Name: "farm", Machine: "a", Listen: "127.0.0.1:7000", Join: []string{"127.0.0.1:7000", "127.0.0.1:7001"}, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats")}
	for want, wrong := range map[string]func(*Options){
		"the name of a cluster has":          func(o *Options) { o.Name = "a b" },
		"the name of a machine has":          func(o *Options) { o.Machine = "" },
		"is HOST:PORT":                       func(o *Options) { o.Listen = "7000" },
		"10.0.0.1:7000 is reached by other":  func(o *Options) { o.Listen = "10.0.0.1:7000" },
		"example.org:7000 is reached by":     func(o *Options) { o.Listen = "example.org:7000" },
		"joins 2 to 100 machines":            func(o *Options) { o.Join = o.Join[:1] },
		"HOST:PORT: \"127.0.0.1:99999\"":     func(o *Options) { o.Join = []string{"127.0.0.1:7000", "127.0.0.1:99999"} },
		"there is no directory for what the": func(o *Options) { o.Dir = "" },
		"there is no socket for clients":     func(o *Options) { o.Socket = "" },
		"make the socket for clients: ":      func(o *Options) { o.Socket = filepath.Join(o.Dir, "not-there", "nats") },
		"the other machines cannot reach":    func(o *Options) { o.Listen = taken.Addr().String() },
	} {
		o := good
		wrong(&o)
		if e, err := Start(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
			if e != nil {
				e.Close()
			}
		}
	}
}

// authority makes certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, pool: x509.NewCertPool()}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

// machine is the TLS of a machine on loopback, at this address.
func (a *authority) machine(t *testing.T, name string, at net.IP) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{at}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: a.pool, Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}
}

// Machines prove themselves to each other: one with certificates of another authority, or with none, is not let in, and no
// client without the secret.
func TestStrangers(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	var join []string
	host := net.IPv4(127, byte(1+mathrand.IntN(250)), byte(mathrand.IntN(250)), 1) // no other test takes its ports
	for range 3 {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: host})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		join = append(join, l.Addr().String())
		l.Close()
	}
	begin := func(i int, name string, identity *tls.Config) (*Engine, *nats.Conn) {
		e, err := Start(Options{Name: "farm", Machine: name, Listen: join[i], Join: join, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats"), TLS: identity})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		closed := make(chan struct{})
		nc, err := nats.Connect("", cluster.Dialer(e), nats.Token(e.secret), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close(); <-closed })
		return e, nc
	}
	a, atA := begin(0, "a", ours.machine(t, "a", host))
	b, atB := begin(1, "b", ours.machine(t, "b", host))
	_, atC := begin(2, "c", theirs.machine(t, "c", host))
	heard := make(chan string, 100)
	for name, nc := range map[string]*nats.Conn{"a": atA, "b": atB, "c": atC} {
		if _, err := nc.Subscribe("hello", func(m *nats.Msg) { heard <- string(m.Data) + name }); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	got, late := map[string]bool{}, time.After(30*time.Second)
	for every := time.NewTicker(100 * time.Millisecond); !got["ab"] || !got["ba"]; { // until a and b have found each other
		select {
		case <-every.C:
			for name, nc := range map[string]*nats.Conn{"a": atA, "b": atB, "c": atC} {
				if err := nc.Publish("hello", []byte(name)); err != nil {
					t.Fatal(err)
				}
			}
		case pair := <-heard:
			got[pair] = true
		case <-late:
			t.Fatal("a and b do not find each other")
		}
	}
	for _, pair := range []string{"ac", "ca", "bc", "cb"} {
		if got[pair] {
			t.Errorf("a word of %c has reached %c", pair[0], pair[1])
		}
	}
	for _, e := range []*Engine{a, b} {
		if nc, err := nats.Connect("", cluster.Dialer(e)); err == nil {
			nc.Close()
			t.Error("a client without the secret is let in")
		}
	}
}

// A server that says that a write has failed, as no file was to be had for it, goes on without what it was for: it is to be started again.
func TestWriteThatFails(t *testing.T) {
	ours := newAuthority(t)
	at := net.IPv4(127, byte(1+mathrand.IntN(250)), byte(mathrand.IntN(250)), 2)
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: at})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	e, err := Start(Options{
		Name: "farm", Machine: "a", Listen: l.Addr().String(), Join: []string{l.Addr().String(), "127.0.0.1:1"}, Dir: t.TempDir(), Socket: filepath.Join(t.TempDir(), "nats"), TLS: ours.machine(t, "a", at),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.log.Errorf("JetStream stream '%s' is not there: %v", "x", errors.New("read"))
	if err := e.Check(); err != nil {
		t.Errorf("before: %v", err)
	}
	e.log.Errorf("RAFT [%s - %s] Critical write error: %v", "node", "group", syscall.EMFILE)
	if err := e.Check(); err == nil || !strings.Contains(err.Error(), "too many open files") {
		t.Errorf("after a write that failed: %v", err)
	}
}

// A server takes clients at its socket alone, which is its user's, in the place of one that was left behind, and however deep the home is. No port is there for them, which
// any user of the machine could fill with connections.
func TestSocket(t *testing.T) {
	host := net.IPv4(127, byte(1+mathrand.IntN(250)), byte(mathrand.IntN(250)), 3)
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: host})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	deep := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(deep, "nats")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := Start(Options{Name: "farm", Machine: "a", Listen: l.Addr().String(), Join: []string{l.Addr().String(), "127.0.0.1:1"}, Dir: t.TempDir(), Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if at := e.server.Addr(); at != nil {
		t.Errorf("clients of any user reach it at %s", at)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != os.ModeSocket || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	closed := make(chan struct{})
	nc, err := nats.Connect("", cluster.Dialer(e), nats.Token(e.secret), nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1<<20-1)
	for _, said := range []string{"", "x", long} {
		if got, err := nc.Request("echo", []byte(said), patience); err != nil || string(got.Data) != said {
			t.Errorf("%d bytes come back as %v, %v", len(said), got, err)
		}
	}
	e.Close()
	<-closed
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket of a server that has ended: %v", err)
	}
}
