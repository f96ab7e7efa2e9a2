package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/certtest"
	"nexus.internal/bridge/client"
)

// machine is a server by TLS, as one at --listen is.
func machine(t *testing.T, authority *certtest.Authority, key auth.Key, change func(*x509.Certificate), handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	cert, private := authority.Files(t, change, "127.0.0.1")
	pair, err := tls.LoadX509KeyPair(cert, private)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if nonce := r.URL.Query().Get("challenge"); nonce != "" {
			_, _ = fmt.Fprintf(w, `{"status":"ok","service":"nexus","version":"7","proof":%q}`, key.Prove(nonce, auth.CertificateAddress(pair.Leaf.Raw)))
			return
		}
		handler(w, r)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// reach is a client of these addresses, without pauses that a test would wait for.
func reach(t *testing.T, ca string, retries int, urls ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: strings.Join(urls, ","), CA: ca, Key: testKey, Retries: retries})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// nobody is an address where nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "https://" + ln.Addr().String()
}

func noAgents(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[]}}`)
}

// What is not to be had at one address is had at the next, with no key sent before. Alone, each says what is wrong.
func TestAddresses(t *testing.T) {
	authority := certtest.New(t)
	never := func(w http.ResponseWriter, r *http.Request) { t.Errorf("%s %s was sent", r.Method, r.URL) }
	good := machine(t, authority, testKey, nil, noAgents)
	expired := machine(t, authority, testKey, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, never)
	named := machine(t, authority, testKey, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"one.example"} }, never)
	plain := httptest.NewServer(http.HandlerFunc(never))
	t.Cleanup(plain.Close)
	plain.Config.ErrorLog = nil
	refuses := func(status int, kind string) string {
		return machine(t, authority, testKey, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no","data":{"type":%q,"details":""}}}`, kind)
		}).URL
	}
	for _, tc := range []struct {
		name, url, want string
		unsent          bool // nothing of the request was, so that it goes on whatever it is
	}{
		{"nobody listens", nobody(t), client.ErrNoServer.Error(), true},
		{"another authority", machine(t, certtest.New(t), testKey, nil, never).URL, "has no authority that signed it", true},
		{"a certificate that has ended", expired.URL, "certificate has expired", true},
		{"a certificate for another host", named.URL, "certificate", true},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), "does not speak TLS", true},
		{"another key", machine(t, authority, auth.Generate(), nil, never).URL, client.ErrUnproved.Error(), true},
		{"a server that ends", refuses(503, "SERVER_DRAINING"), "no", false},
		{"a server without a majority", refuses(503, "NO_QUORUM"), "no", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			alone := reach(t, authority.File, -1, tc.url)
			if _, err := client.Do(t.Context(), alone, "", api.ListAgents, api.None{}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("alone: %v, want %q", err, tc.want)
			}
			both := reach(t, authority.File, 2, tc.url, good.URL)
			if _, err := client.Do(t.Context(), both, "", api.ListAgents, api.None{}); err != nil {
				t.Error(err)
			}
			if both.URL() != good.URL {
				t.Errorf("the next call goes to %s", both.URL())
			}
			err := reach(t, authority.File, 2, tc.url, good.URL).Call(t.Context(), client.RootPath, "rotate_key", nil, nil)
			if tc.unsent != (err == nil) {
				t.Errorf("what may not be repeated: %v", err)
			}
		})
	}
	dead := []string{nobody(t), nobody(t)}
	_, err := client.Do(t.Context(), reach(t, authority.File, 1, dead...), "", api.ListAgents, api.None{})
	if err == nil || !strings.Contains(err.Error(), dead[0]) || !strings.Contains(err.Error(), dead[1]) {
		t.Errorf("where no address is to be had: %v", err)
	}
}

// A machine that does not know the keys of its cluster yet is one without a majority: it gets no key, and is asked again, whatever the others say.
func TestKeysUnknown(t *testing.T) {
	authority := certtest.New(t)
	var unknown atomic.Int64 // how many challenges it answers before it knows them
	cert, private := authority.Files(t, nil, "127.0.0.1")
	pair, err := tls.LoadX509KeyPair(cert, private)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch nonce := r.URL.Query().Get("challenge"); {
		case nonce != "" && unknown.Add(-1) >= 0:
			_, _ = io.WriteString(w, `{"status":"ok","service":"nexus","version":"7","keys_unknown":true}`)
		case nonce != "":
			_, _ = fmt.Fprintf(w, `{"status":"ok","service":"nexus","version":"7","proof":%q}`, testKey.Prove(nonce, auth.CertificateAddress(pair.Leaf.Raw)))
		case unknown.Load() >= 0:
			t.Errorf("%s %s was sent", r.Method, r.URL)
		default:
			noAgents(w, r)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	stranger := machine(t, authority, auth.Generate(), nil, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s was sent", r.Method, r.URL) })
	for _, others := range [][]string{nil, {nobody(t), nobody(t)}, {stranger.URL}} {
		for _, urls := range [][]string{append([]string{server.URL}, others...), append(slices.Clone(others), server.URL)} {
			unknown.Store(1000)
			_, err := client.Do(t.Context(), reach(t, authority.File, 1, urls...), "", api.ListAgents, api.None{})
			if client.KindOf(err) != api.KindNoQuorum || errors.Is(err, client.ErrUnproved) || errors.Is(err, client.ErrNoServer) || unknown.Load() != 1000-2 {
				t.Errorf("%v; it was asked %d times", err, 1000-unknown.Load())
			}
			for _, err := range reach(t, authority.File, -1, urls...).FollowAll(t.Context(), "", client.Filter{}) {
				if client.KindOf(err) != api.KindNoQuorum {
					t.Errorf("events: %v", err)
				}
			}
			unknown.Store(1)
			if _, err := client.Do(t.Context(), reach(t, authority.File, 2, urls...), "", api.ListAgents, api.None{}); err != nil {
				t.Error(err)
			}
		}
	}
}

// A client that looks for its key takes the one that a machine has which does not know its cluster's keys yet.
func TestKeysUnknownAndAnotherKey(t *testing.T) {
	dir := t.TempDir()
	own, old := auth.Generate(), auth.Generate()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch nonce := r.URL.Query().Get("challenge"); {
		case nonce != "" && r.URL.Query().Get("key") != own.ID():
			_, _ = io.WriteString(w, `{"status":"ok","service":"nexus","version":"7","keys_unknown":true}`)
		case nonce != "":
			_, _ = fmt.Fprintf(w, `{"status":"ok","service":"nexus","version":"7","proof":%q}`, own.Prove(nonce, r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()))
		default:
			noAgents(w, r)
		}
	}))
	t.Cleanup(server.Close)
	port := portOf(t, server.Listener.Addr())
	path := auth.KeyPath(dir, port)
	put := func(key auth.Key) {
		if err := os.WriteFile(path, []byte(key.Reveal()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(old)
	c, err := client.New(client.Options{Port: port, Lookup: &auth.Lookup{Home: dir, Port: port}, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	put(own)
	if _, err := client.Do(t.Context(), c, "", api.ListAgents, api.None{}); err != nil {
		t.Error(err)
	}
}

// What was answered as old is told for all that a client has asked, and what was since the last look apart.
func TestStale(t *testing.T) {
	var since atomic.Value
	server := httptest.NewServer(proving(testKey, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(api.StaleHeader, since.Load().(string))
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[]}}`)
	}))
	t.Cleanup(server.Close)
	c := dial(t, portOf(t, server.Listener.Addr()))
	for _, says := range []string{"2026-01-02T03:04:05Z", "", api.StaleNever} {
		since.Store(says)
		if _, err := client.Do(t.Context(), c, "", api.ListAgents, api.None{}); err != nil {
			t.Fatal(err)
		}
		if got := c.TakeStale(); got != says {
			t.Errorf("since the last look %q, want %q", got, says)
		}
	}
	since.Store("never")
	for range 2 {
		if _, err := client.Do(t.Context(), c, "", api.ListAgents, api.None{}); err != nil {
			t.Fatal(err)
		}
		since.Store("")
	}
	if got := c.Stale(); got != "never" {
		t.Errorf("of all that was asked: %q", got)
	}
}

// At the port for other machines a client without TLS is told what to do.
func TestPlainToTLS(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request","data":{"type":"INVALID_REQUEST","details":"this port speaks TLS"}}}`)
	}))
	t.Cleanup(server.Close)
	_, err := client.Do(t.Context(), dial(t, portOf(t, server.Listener.Addr())), "", api.ListAgents, api.None{})
	if !errors.Is(err, client.ErrUnproved) || !strings.Contains(err.Error(), "this port speaks TLS") {
		t.Errorf("got %v", err)
	}
}

// A request that the first server may have taken is sent to the next one only if it may be repeated, with its request_id.
func TestTakenAndRepeated(t *testing.T) {
	authority := certtest.New(t)
	var taken [2]atomic.Value
	serve := func(i int, answer http.HandlerFunc) *httptest.Server {
		return machine(t, authority, testKey, nil, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			taken[i].Store(gjson.GetBytes(body, "method").Str + " " + gjson.GetBytes(body, "params.request_id").Str)
			answer(w, r)
		})
	}
	first := serve(0, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	second := serve(1, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":"yes","stop_reason":"completed"}}`)
	})
	sent, err := client.Do(t.Context(), reach(t, authority.File, 2, first.URL, second.URL), "a", api.Send, api.SendParams{Content: "?"})
	if err != nil || sent.Content == nil || *sent.Content != "yes" {
		t.Fatalf("%v, %+v", err, sent)
	}
	if one, two := taken[0].Load(), taken[1].Load(); one != two || one == "send " {
		t.Errorf("the servers were asked for %v and %v", one, two)
	}
	taken[1].Store("")
	err = reach(t, authority.File, 2, first.URL, second.URL).Call(t.Context(), client.RootPath, "rotate_key", nil, nil)
	if err == nil || taken[1].Load() != "" {
		t.Errorf("what may not be repeated was, or was not told: %v, %v", err, taken[1].Load())
	}
}

// Events go on at the next address after the last one that was seen, where a server dies and where it ends.
func TestFollowGoesOnElsewhere(t *testing.T) {
	for _, ends := range []string{"dies", "ends"} {
		t.Run(ends, func(t *testing.T) {
			authority := certtest.New(t)
			var asked atomic.Value
			tell := func(w http.ResponseWriter, numbers ...int) {
				w.Header().Set("Content-Type", "text/event-stream")
				for _, n := range numbers {
					fmt.Fprintf(w, "id: %d\nevent: text\ndata: {\"type\":\"text\"}\n\n", n)
				}
				_ = http.NewResponseController(w).Flush()
			}
			first := machine(t, authority, testKey, nil, func(w http.ResponseWriter, r *http.Request) {
				tell(w, 1, 2, 3)
				if ends == "ends" {
					fmt.Fprint(w, "event: end\ndata: {\"type\":\"end\",\"reason\":\"draining\"}\n\n")
					return
				}
				<-r.Context().Done()
			})
			second := machine(t, authority, testKey, nil, func(w http.ResponseWriter, r *http.Request) {
				asked.Store(r.URL.Query().Get("after"))
				tell(w, 4, 5)
				fmt.Fprint(w, "event: end\ndata: {\"type\":\"end\",\"reason\":\"destroyed\"}\n\n")
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var got []uint64
			for event, err := range reach(t, authority.File, 5, first.URL, second.URL).Follow(ctx, "a", 0, client.Filter{}) {
				if err != nil {
					t.Fatal(err)
				}
				if event.Seq > 0 {
					got = append(got, event.Seq)
				}
				if event.Seq == 3 {
					first.Listener.Close()
					first.CloseClientConnections()
				}
			}
			if fmt.Sprint(got) != "[1 2 3 4 5]" || asked.Load() != "3" {
				t.Errorf("the events are %v, asked for after %v", got, asked.Load())
			}
		})
	}
}
