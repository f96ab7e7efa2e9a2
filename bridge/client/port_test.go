package client_test

import (
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/homelock"
)

// Without a port it is that of NEXUS_PORT, else that of the home's server while it
// runs, else the usual one.
func TestDefaultPort(t *testing.T) {
	home := t.TempDir()
	want := func(given string, port int, url string) {
		t.Helper()
		t.Setenv("NEXUS_PORT", given)
		got, err := client.DefaultPort(given, home)
		if (err != nil) != (port == 0) || got != port {
			t.Errorf("%q: got %d, %v", given, got, err)
		}
		c, err := client.New(client.Options{Key: auth.Generate(), Lookup: &auth.Lookup{Home: home}})
		if (err != nil) != (port == 0) || err == nil && c.URL() != url {
			t.Errorf("%q: %v, want %s", given, err, url)
		}
	}
	want("", 8765, "http://127.0.0.1:8765")
	if err := os.Mkdir(filepath.Join(home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(homelock.Path(home))
	if err != nil {
		t.Fatal(err)
	}
	if err := homelock.Take(file); err != nil {
		t.Fatal(err)
	}
	if err := homelock.Record(file, 9000); err != nil {
		t.Fatal(err)
	}
	want("", 9000, "http://127.0.0.1:9000")
	want("9001", 9001, "http://127.0.0.1:9001")
	for _, bad := range []string{"x", "0", "-1", "65536"} {
		want(bad, 0, "")
	}
	file.Close()
	want("", 8765, "http://127.0.0.1:8765")
}
