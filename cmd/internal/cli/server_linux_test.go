package cli_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/homelock"
	"nexus.internal/cmd/internal/cli"
)

// A server that takes its home, or dies, between two looks is looked at again.
func TestServersThatChangeMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(t *testing.T, ln net.Listener, key auth.Key, lock *os.File)
		want  string
	}{
		"it takes its home": {func(t *testing.T, ln net.Listener, key auth.Key, lock *os.File) {
			server := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/healthz" {
					_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[]}}`)
					return
				}
				if err := homelock.Take(lock); err == nil {
					err = homelock.Record(lock, ln.Addr().(*net.TCPAddr).Port)
					if err != nil {
						t.Error(err)
					}
				}
				proof := key.Prove(r.URL.Query().Get("challenge"), r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
				_, _ = io.WriteString(w, `{"status":"ok","service":"nexus","version":"test","proof":"`+proof+`"}`)
			})}}
			server.Start()
			t.Cleanup(server.Close)
		}, "no agents"},
		"it dies": {func(t *testing.T, ln net.Listener, _ auth.Key, lock *os.File) {
			if err := homelock.Take(lock); err != nil {
				t.Fatal(err)
			}
			if err := homelock.Record(lock, ln.Addr().(*net.TCPAddr).Port); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			t.Cleanup(func() { ln.Close(); <-ended })
			go func() {
				defer close(ended)
				for range 3 {
					conn, err := ln.Accept()
					if err != nil {
						return // fewer looks than that
					}
					_ = conn.(*net.TCPConn).SetLinger(0)
					conn.Close()
				}
				ln.Close()
				lock.Close()
			}()
		}, "no server on port"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			if err := os.Mkdir(filepath.Join(home, "run"), 0o700); err != nil {
				t.Fatal(err)
			}
			lock, err := os.Create(homelock.Path(home))
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			port := ln.Addr().(*net.TCPAddr).Port
			key, err := auth.Create(auth.KeyPath(home, port))
			if err != nil {
				t.Fatal(err)
			}
			c.serve(t, ln, key, lock)
			var out strings.Builder
			app := cli.New(cli.Options{
				Name: "nexus-rpc", Environ: []string{"NEXUS_HOME=" + home, "NEXUS_PORT=" + strconv.Itoa(port)},
				Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
			})
			status := app.Run(t.Context(), []string{"list", "--no-start"})
			if !strings.Contains(out.String(), c.want) {
				t.Errorf("status %d: %s", status, &out)
			}
		})
	}
}
