package identity_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/supervisor/cluster/identity"
)

func farm(t *testing.T, machines ...string) identity.Cluster {
	t.Helper()
	c := identity.Cluster{Name: "farm"}
	for _, m := range machines {
		a, err := identity.ParseAddress(m)
		if err != nil {
			t.Fatal(err)
		}
		c.Machines = append(c.Machines, a)
	}
	return c
}

// shake has one machine connect to another, as a route does: both sides prove themselves.
func shake(t *testing.T, from, to, host string) error {
	t.Helper()
	client, err := identity.TLS(from, filepath.Base(from))
	if err != nil {
		t.Fatal(err)
	}
	server, err := identity.TLS(to, filepath.Base(to))
	if err != nil {
		t.Fatal(err)
	}
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, server.RootCAs
	client.ServerName = host
	a, b := net.Pipe()
	defer a.Close()
	answered := make(chan error, 1)
	go func() {
		s := tls.Server(b, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		b.Close()
		answered <- err
	}()
	c := tls.Client(a, client)
	err = c.Handshake()
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	a.Close()
	if refused := <-answered; err == nil {
		err = refused
	}
	return err
}

// The machines of a cluster are made in files that their owner alone reads, know each other, and refuse those of another cluster.
// One that is added later is of the same cluster, and one that is named again gets another certificate.
func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "farm")
	specs, err := identity.Init(dir, farm(t, "b=10.0.0.2:8766", "a=one.example:8766"))
	if err != nil {
		t.Fatal(err)
	}
	join := []string{"one.example:8766", "10.0.0.2:8766"}
	want := []identity.Spec{{Cluster: "farm", Machine: "a", Listen: join[0], Join: join}, {Cluster: "farm", Machine: "b", Listen: join[1], Join: join}}
	if diff := cmp.Diff(want, specs); diff != "" {
		t.Errorf("the machines (-want +got):\n%s", diff)
	}
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if mode := info.Mode().Perm(); err == nil && mode != 0o600 && (mode != 0o700 || !e.IsDir()) {
			t.Errorf("%s has mode %v", path, mode)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := shake(t, a, b, "10.0.0.2"); err != nil {
		t.Errorf("a is not known to b: %v", err)
	}
	if err := shake(t, b, a, "one.example"); err != nil {
		t.Errorf("b is not known to a: %v", err)
	}
	if err := shake(t, b, a, "two.example"); err == nil {
		t.Error("a is taken for another host")
	}
	theirs := filepath.Join(t.TempDir(), "theirs")
	if _, err := identity.Init(theirs, farm(t, "a=one.example:8766", "b=10.0.0.2:8766")); err != nil {
		t.Fatal(err)
	}
	if err := shake(t, filepath.Join(theirs, "b"), a, "one.example"); err == nil {
		t.Error("a machine of another cluster is let in")
	}

	before, err := os.ReadFile(filepath.Join(a, "certificate.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if specs, err = identity.Init(dir, farm(t, "c=10.0.0.3:8766", "b=10.0.0.9:8766")); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(specs[2].Join); got != "[one.example:8766 10.0.0.9:8766 10.0.0.3:8766]" {
		t.Errorf("the addresses of all are %s", got)
	}
	if after, err := os.ReadFile(filepath.Join(a, "certificate.pem")); err != nil || string(after) != string(before) {
		t.Errorf("a, which was not named, has another certificate: %v", err)
	}
	if s, err := identity.Read(a); err != nil || len(s.Join) != 3 {
		t.Errorf("a knows %+v, %v", s, err)
	}
	certificate, err := identity.TLS(a, "a")
	if err != nil {
		t.Fatal(err)
	}
	if ago := time.Since(identity.Certified(certificate.Certificates[0].Leaf)); ago < 0 || ago > time.Hour {
		t.Errorf("a was certified %v ago", ago)
	}
	for _, to := range []string{"b 10.0.0.9", "c 10.0.0.3"} {
		name, host, _ := strings.Cut(to, " ")
		if err := shake(t, a, filepath.Join(dir, name), host); err != nil {
			t.Errorf("%s is not known to a: %v", name, err)
		}
	}
	if specs, err = identity.Init(dir, identity.Cluster{Name: "farm", Without: []string{"b"}}); err != nil || len(specs) != 2 {
		t.Fatalf("without b there are %v, %v", specs, err)
	}
	if s, err := identity.Read(a); err != nil || fmt.Sprint(s.Join) != "[one.example:8766 10.0.0.3:8766]" {
		t.Errorf("without b, a knows %+v, %v", s, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the files of b: %v", err)
	}
}

// What is wrong is said, and nothing is changed.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"a": "MACHINE=HOST:PORT", "a b=h:1": "the name of a machine has", "a=h": "is HOST:PORT", "a=h:0": "is HOST:PORT",
		"a=0.0.0.0:1":         `no other machine reaches one at "0.0.0.0:1": name the address, or the host, by which they do, as in 10.0.0.1:1`,
		"a=0:1":               `no other machine reaches one at "0:1": name the address, or the host, by which they do, as in 10.0.0.1:1`,
		"a=*:1":               `no other machine reaches one at "*:1": name the address, or the host, by which they do, as in 10.0.0.1:1`,
		"a=224.0.0.1:1":       `no other machine reaches one at "224.0.0.1:1": name the address, or the host, by which they do, as in 10.0.0.1:1`,
		"a=255.255.255.255:1": `no other machine reaches one at "255.255.255.255:1": name the address, or the host, by which they do, as in 10.0.0.1:1`,
		"a=-h:1":              `no other machine reaches one at "-h:1": name the address, or the host, by which they do, as in 10.0.0.1:1`,
		"a=1.2.3:1":           `no other machine reaches one at "1.2.3:1": name the address, or the host, by which they do, as in 10.0.0.1:1`,
		"a=[::]:1":            "no other machine reaches one at", "a=[::%eth0]:1": "no other machine reaches one at", "a=:1": "no other machine reaches one at", "a=": "is HOST:PORT",
	} {
		if _, err := identity.ParseAddress(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	used := t.TempDir()
	if err := os.WriteFile(filepath.Join(used, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(t.TempDir(), "farm")
	if _, err := identity.Init(made, farm(t, "a=h:1", "b=h:2")); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	for _, tc := range []struct {
		dir  string
		c    identity.Cluster
		want string
	}{
		{fresh, identity.Cluster{Name: "a b"}, "the name of a cluster has"},
		{fresh, farm(t, "a=h:1"), "a cluster joins 2 to 100 machines"},
		{fresh, farm(t, "a=h:1", "a=h:2"), "the machine a is named twice"},
		{fresh, farm(t, "a=h:1", "b=h:1"), "two machines listen at h:1"},
		{used, farm(t, "a=h:1", "b=h:2"), "has notes, which nexus cluster init did not make"},
		{made, identity.Cluster{Name: "other", Machines: farm(t, "c=h:3").Machines}, "is of the cluster farm, not of other"},
		{made, farm(t, "c=h:2"), "two machines listen at h:2"},
		{made, identity.Cluster{Name: "farm", Without: []string{"c"}}, "has no machine c that could be left out"},
		{made, identity.Cluster{Name: "farm", Without: []string{"b"}}, "a cluster joins 2 to 100 machines"},
		{made, identity.Cluster{Name: "farm", Machines: farm(t, "b=h:3").Machines, Without: []string{"b"}}, "is named, and left out, too"},
	} {
		if _, err := identity.Init(tc.dir, tc.c); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.c, err, tc.want)
		}
	}
	if _, err := os.Stat(fresh); err == nil {
		t.Errorf("%s was made", fresh)
	}
}

// A cluster keeps the name that its directory has, unless another one is given; a new one is called nexus without one.
func TestNameOfDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"farm1", identity.DefaultName} {
		of := filepath.Join(dir, name)
		c := farm(t, "a=h:1", "b=h:2")
		if c.Name = name; name == identity.DefaultName {
			c.Name = ""
		}
		if _, err := identity.Init(of, c); err != nil {
			t.Fatal(err)
		}
		next := farm(t, "c=h:3")
		next.Name, next.Without = "", []string{"b"}
		specs, err := identity.Init(of, next)
		if err != nil || len(specs) != 2 || specs[0].Cluster != name || specs[1].Cluster != name {
			t.Errorf("%s: %+v, %v", name, specs, err)
		}
	}
}

// A directory that lacks something, or whose key others can read, is refused.
func TestDamaged(t *testing.T) {
	for want, harm := range map[string]func(dir string) error{
		"a is 0770, so others may change what it says: look whether they have, then run chmod go-w": func(dir string) error { return os.Chmod(dir, 0o770) },
		"ca.pem is 0620, so others may change what it says":                                         func(dir string) error { return os.Chmod(filepath.Join(dir, "ca.pem"), 0o620) },
		"certificate.pem is 0602, so others":                                                        func(dir string) error { return os.Chmod(filepath.Join(dir, "certificate.pem"), 0o602) },
		"chmod 600":                                                                                 func(dir string) error { return os.Chmod(filepath.Join(dir, "key.pem"), 0o640) },
		"key.pem: no such file":                                                                     func(dir string) error { return os.Remove(filepath.Join(dir, "key.pem")) },
		"has none":                                                                                  func(dir string) error { return os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("x"), 0o600) },
		"private key does not match": func(dir string) error {
			return copyFile(filepath.Join(dir, "../b/key.pem"), filepath.Join(dir, "key.pem"))
		},
		"no certificate of this": func(dir string) error {
			return copyFile(filepath.Join(dir, "../../other/ca.pem"), filepath.Join(dir, "ca.pem"))
		},
		"is of the machine b, not of a": func(dir string) error {
			b := filepath.Join(dir, "../b")
			return errors.Join(copyFile(filepath.Join(b, "key.pem"), filepath.Join(dir, "key.pem")), copyFile(filepath.Join(b, "certificate.pem"), filepath.Join(dir, "certificate.pem")))
		},
		"certificate.pem: no such file": func(dir string) error { return os.Remove(filepath.Join(dir, "certificate.pem")) },
	} {
		dir := t.TempDir()
		for _, name := range []string{"farm", "other"} {
			if _, err := identity.Init(filepath.Join(dir, name), farm(t, "a=h:1", "b=h:2")); err != nil {
				t.Fatal(err)
			}
		}
		a := filepath.Join(dir, "farm", "a")
		if err := harm(a); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.TLS(a, "a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if _, err := identity.Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "nexus cluster init makes one") {
		t.Errorf("an empty directory: %v", err)
	}
}

// What another user owns is refused, as that user could be taken for the machine, or say which ones are let in. Root alone gives files away: of anybody else they stay
// the owner's, and are taken.
func TestForeign(t *testing.T) {
	owner := os.Geteuid()
	if owner == 0 {
		owner = 12345
	}
	refused := func(err error, want ...string) bool {
		if owner == os.Geteuid() {
			return err == nil
		}
		return err != nil && !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(err.Error(), text) })
	}
	for _, name := range []string{".", "machine.json", "ca.pem", "certificate.pem", "key.pem"} {
		dir := filepath.Join(t.TempDir(), "farm")
		if _, err := identity.Init(dir, farm(t, "a=h:1", "b=h:2")); err != nil {
			t.Fatal(err)
		}
		a := filepath.Join(dir, "a")
		path := filepath.Join(a, name)
		if err := os.Lchown(path, owner, -1); err != nil {
			t.Fatal(err)
		}
		_, err := identity.Read(a)
		if err == nil {
			_, err = identity.TLS(a, "a")
		}
		if !refused(err, path+" is another user's", "sudo -u '#12345'") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{".", "ca.pem", "ca-key.pem"} {
		dir := filepath.Join(t.TempDir(), "farm")
		if _, err := identity.Init(dir, farm(t, "a=h:1", "b=h:2")); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.Lchown(path, owner, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.Init(dir, farm(t, "c=h:3")); !refused(err, path+" is another user's") {
			t.Errorf("another machine of another user's %s: %v", name, err)
		}
	}
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
