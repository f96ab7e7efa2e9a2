package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
)

// What cannot prove that it has the key is sent none, whatever it says.
func TestKeyGoesToNoStranger(t *testing.T) {
	var real string // the address of a server that has the key
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
	}{
		{"a nexus server without a proof", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"status":"ok","service":"nexus","version":"7"}`)
		}},
		{"one with another key", proving(auth.Generate(), nil)},
		{"one that passes the challenge on to the real server", func(w http.ResponseWriter, r *http.Request) {
			response, err := http.Get("http://" + real + r.URL.String())
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			_, _ = io.Copy(w, response.Body)
		}},
		{"one that gives the challenge back", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"status":"ok","service":"nexus","version":"7","proof":"`+r.URL.Query().Get("challenge")+`"}`)
		}},
		{"another service", func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			var sent atomic.Bool
			real = "127.0.0.1:" + strconv.Itoa(serve(t, http.NotFound))
			stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "" || r.URL.Path != "/healthz" {
					sent.Store(true)
				}
				test.answer(w, r)
			}))
			defer stranger.Close()
			c := dial(t, portOf(t, stranger.Listener.Addr()))
			if _, err := client.Do(context.Background(), c, "", api.ListAgents, api.None{}); !errors.Is(err, client.ErrUnproved) {
				t.Errorf("got %v, want ErrUnproved", err)
			}
			if sent.Load() {
				t.Error("the key was sent")
			}
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

// A server that has proved itself may be gone by the next connection, and a
// stranger on its port.
func TestEachConnectionIsProved(t *testing.T) {
	first := httptest.NewServer(proving(testKey, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[]}}`)
	}))
	port := portOf(t, first.Listener.Addr())
	c := dial(t, port)
	if _, err := client.Do(context.Background(), c, "", api.ListAgents, api.None{}); err != nil {
		t.Fatal(err)
	}
	c.Close() // the next call needs a connection of its own
	first.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	stranger := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the key was sent")
		}
	})}
	served := make(chan error)
	go func() { served <- stranger.Serve(ln) }()
	if _, err := client.Do(context.Background(), c, "", api.ListAgents, api.None{}); !errors.Is(err, client.ErrUnproved) {
		t.Errorf("got %v, want ErrUnproved", err)
	}
	stranger.Close()
	<-served
}

// Whoever has the key that was replaced, and not the one that took its place, is not
// sent that one: neither on a connection that it proved itself on before, and which was
// busy while the client found the new key, nor on another.
func TestAttackNewKeyOnAProvedConnection(t *testing.T) {
	home := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(t, ln.Addr())
	path := auth.KeyPath(home, port)
	known, err := auth.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var replaced atomic.Bool
	begun, end := make(chan struct{}), make(chan struct{})
	stranger := httptest.NewUnstartedServer(proving(known, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch {
		case r.Header.Get("Authorization") != "Bearer "+known.Reveal():
			t.Error("another key was sent")
		case strings.Contains(string(body), "hold"):
			close(begun)
			<-end
		case replaced.Load():
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32003,"message":"x","data":{"type":"AUTHENTICATION_FAILED","details":"","recovery_suggestions":[]}}}`)
			return
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	stranger.Listener.Close()
	stranger.Listener = ln
	stranger.Start()
	defer stranger.Close()
	c, err := client.New(client.Options{Port: port, Lookup: &auth.Lookup{Home: home, Port: port}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	held := make(chan error)
	go func() {
		held <- c.Call(context.Background(), client.RootPath, "list_agents", map[string]string{"x": "hold"}, nil)
	}()
	<-begun
	if _, err = auth.Create(path); err != nil {
		t.Fatal(err)
	}
	replaced.Store(true)
	call := func() error { return c.Call(context.Background(), client.RootPath, "list_agents", nil, nil) }
	if err := call(); !errors.Is(err, client.ErrUnproved) {
		t.Errorf("once there is another key: %v", err)
	}
	close(end)
	if err := <-held; err != nil {
		t.Errorf("what was under way with the old key: %v", err)
	}
	for range 3 {
		if err := call(); !errors.Is(err, client.ErrUnproved) {
			t.Errorf("when the connection is free again: %v", err)
		}
	}
}
