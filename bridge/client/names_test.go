package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/homelock"
)

// What cannot be the name of an agent is refused as create_agent refuses it, before
// anything is sent; whatever may be one gets through.
func TestNamesOfAgents(t *testing.T) {
	asked := ""
	c := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		http.Error(w, "no", http.StatusNotFound)
	}))
	ctx := context.Background()
	calls := map[string]func(id string) error{
		"get_tokens": func(id string) error { _, err := client.Do(ctx, c, id, api.GetTokens, api.None{}); return err },
		"call":       func(id string) error { return c.Call(ctx, client.AgentPath(id), "get_tokens", nil, nil) },
		"stream": func(id string) (err error) {
			for _, err = range c.SendStream(ctx, id, api.SendParams{Content: "hi"}) {
			}
			return err
		},
		"events": func(id string) (err error) {
			for _, err = range c.Events(ctx, id, 0, client.Filter{}) {
			}
			return err
		},
		"follow": func(id string) (err error) {
			for _, err = range c.Follow(ctx, id, 0, client.Filter{}) {
			}
			return err
		},
	}
	for name, call := range calls {
		for _, id := range []string{"", "a b", "a?x=1", "a#x", "../x", "a/b", "%41", "a..b", "é", "a\r\n", "a%"} {
			asked = ""
			e, refused := errors.AsType[*api.ParamError](call(id))
			if want := api.CheckAgentID(id); !refused || e.Error() != want.Error() || asked != "" {
				t.Errorf("%s of %q: %v (%q was asked), want %v", name, id, e, asked, want)
			}
		}
		for _, id := range []string{"a", ".tmp", "events", "a.b_c-1"} {
			if err := call(id); asked == "" {
				t.Errorf("%s of %q: nothing was asked: %v", name, id, err)
			}
		}
	}
}

// That no server runs is told, and what to do, where there is a key and where none is.
func TestWithoutAServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := portOf(t, ln.Addr())
	ln.Close()
	home := t.TempDir()
	own, err := os.Create(filepath.Join(home, "server.key"))
	if err == nil {
		_, err = own.WriteString("nxk_ofaserverthatisgone")
		err = errors.Join(err, own.Chmod(0o600), own.Close(), os.Mkdir(filepath.Join(home, "run"), 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}
	// A call that is tried again ends with the time of its context, as there are enough tries.
	stale, err := client.New(client.Options{Port: port, Lookup: &auth.Lookup{Home: home, Port: port}, Retries: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	long, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := client.Do(long, stale, "", api.ListAgents, api.None{}); !errors.Is(err, client.ErrNoServer) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with the key of a server that is gone: %v, want ErrNoServer at once", err)
	}
	lock, err := os.Create(homelock.Path(home)) // of a server that starts
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := errors.Join(homelock.Take(lock), homelock.Record(lock, port)); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // shorter than the first pause
	defer cancel()
	if _, err := client.Do(short, stale, "", api.ListAgents, api.None{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while a server starts: %v, want another try", err)
	}
	_, err = client.Do(context.Background(), dial(t, port), "", api.ListAgents, api.None{})
	if _, again := errors.AsType[*client.ConnError](err); !again || !errors.Is(err, client.ErrNoServer) {
		t.Errorf("with a key: %v, want ErrNoServer", err)
	}
	_, keyless := client.New(client.Options{Port: port, Lookup: &auth.Lookup{Home: t.TempDir(), Port: port}})
	for _, err := range []error{err, keyless} {
		if err == nil || !strings.Contains(err.Error(), "start one with nexus serve") {
			t.Errorf("got %v, want what to do", err)
		}
	}
}
