package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"nexus.internal/bridge/api"
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
		environ := []string{"NEXUS_HOME=" + home, "NEXUS_PORT=" + given, "NEXUS3_API_KEY=" + auth.Generate().Reveal()}
		c, err = client.FromEnvironment(environ)
		if (err != nil) != (port == 0) || err == nil && c.URL() != url {
			t.Errorf("%q, by the environment: %v, want %s", given, err, url)
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
	if _, err := client.FromEnvironment([]string{"NEXUS_HOME=" + home}); !errors.Is(err, auth.ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
	if _, err := client.FromEnvironment(nil); err == nil {
		t.Error("a client without a home")
	}
}

// That the key is looked for again is no retry: the server carried out nothing.
func TestAnotherKeyIsNoRetry(t *testing.T) {
	home := t.TempDir()
	var key atomic.Pointer[auth.Key]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proving(*key.Load(), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agent_id":"a"}}`)
		})(w, r)
	}))
	defer server.Close()
	port := portOf(t, server.Listener.Addr())
	replace := func() {
		made, err := auth.Create(auth.KeyPath(home, port))
		if err != nil {
			t.Fatal(err)
		}
		key.Store(&made)
	}
	replace()
	c, err := client.New(client.Options{Port: port, Lookup: &auth.Lookup{Home: home, Port: port}, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		replace()
		if _, err := client.Do(t.Context(), c, "", api.CreateAgent, api.CreateAgentParams{}); err != nil {
			t.Error(err)
		}
	}
}

// A server of the home that starts on another port is found there, with the key that it has
// made, also by what must not be done twice. The one at a port that was named is not.
func TestTheServerMoves(t *testing.T) {
	t.Setenv("NEXUS_PORT", "")
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(homelock.Path(home))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := homelock.Take(lock); err != nil {
		t.Fatal(err)
	}
	start := func() (port int, stop func()) {
		var key auth.Key // known once there is a port
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			proving(key, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agent_id":"a"}}`)
			})(w, r)
		}))
		port = portOf(t, server.Listener.Addr())
		key, err = auth.Create(auth.KeyPath(home, port))
		if err == nil {
			err = homelock.Record(lock, port)
		}
		if err != nil {
			t.Fatal(err)
		}
		return port, server.Close
	}
	create := func(c *client.Client) error {
		_, err := client.Do(t.Context(), c, "", api.CreateAgent, api.CreateAgentParams{})
		return err
	}
	first, stop := start()
	meant, err := client.FromEnvironment([]string{"NEXUS_HOME=" + home})
	if err != nil {
		t.Fatal(err)
	}
	defer meant.Close()
	also, err := client.New(client.Options{Lookup: &auth.Lookup{Home: home, Port: first}})
	if err != nil {
		t.Fatal(err)
	}
	defer also.Close()
	named, err := client.New(client.Options{Port: first, Lookup: &auth.Lookup{Home: home, Port: first}, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	for _, c := range []*client.Client{meant, also, named} {
		if err := create(c); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	for _, c := range []*client.Client{meant, also, named} {
		c.Close() // what is written to a kept connection as its server ends may have been taken
	}
	second, stop := start()
	defer stop()
	for _, c := range []*client.Client{meant, also} {
		if err := create(c); err != nil || c.URL() != fmt.Sprintf("http://127.0.0.1:%d", second) {
			t.Errorf("got %v, the server at %s", err, c.URL())
		}
	}
	if err := create(named); !errors.Is(err, client.ErrNoServer) || strings.Contains(err.Error(), strconv.Itoa(second)) {
		t.Errorf("at the port that was named: %v", err)
	}
}

// A home's key files are of its own server, at http on this machine: they are used for an address of that, by its port, and for no
// other address.
func TestKeyFilesAreOfTheHomesServer(t *testing.T) {
	home := t.TempDir()
	server := start(t, home, "127.0.0.1:0", noAgents)
	defer server.Close()
	c, err := client.FromEnvironment([]string{"NEXUS_HOME=" + home, "NEXUS_SERVER=" + server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := client.Do(t.Context(), c, "", api.ListAgents, api.None{}); err != nil {
		t.Errorf("with the key file of that port: %v", err)
	}
	encrypted := strings.Replace(server.URL, "http", "https", 1)
	for _, named := range []string{encrypted, server.URL + "," + encrypted} {
		if _, err := client.FromEnvironment([]string{"NEXUS_HOME=" + home, "NEXUS_SERVER=" + named}); !errors.Is(err, auth.ErrNoKey) || !strings.Contains(err.Error(), "are of its own server") {
			t.Errorf("%s: %v, want no key", named, err)
		}
	}
}
