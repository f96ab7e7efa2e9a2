package web_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"golang.org/x/net/dns/dnsmessage"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/web"
	"nexus.internal/protocol"
)

// loopback is what tests let the tool reach; other is a loopback address that it may not.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}

// fetch calls the tool under a preset. pairs are further members of the input, in JSON.
func fetch(t *testing.T, o web.Options, preset, at string, pairs ...string) (string, error) {
	t.Helper()
	in := map[string]any{"url": at}
	for i := 0; i < len(pairs); i += 2 {
		var value any
		if err := json.Unmarshal([]byte(pairs[i+1]), &value); err != nil {
			t.Fatal(err)
		}
		in[pairs[i]] = value
	}
	input, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	permit := permission.Permit{Policy: permission.Policy{Permissions: protocol.Permissions{Preset: preset}, Cwd: "/"}}
	result, err := web.New(o).Run(t.Context(), tool.Call{Name: web.Name, Input: input, Permit: permit})
	return result.Text, err
}

func serve(t *testing.T, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestFetch(t *testing.T) {
	var asked atomic.Pointer[http.Request]
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r)
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, `<html><head><title>A page</title><style>p{}</style></head><body><h1>Head</h1><p>Some   <b>text</b>
 and <a href="/next?a=1">a link</a>.</p><script>alert(1)</script><ul><li>one<li>two<ul><li>inner</ul></ul><pre>a  b
  c</pre><table><tr><td>1<td>2</tr></table><a href="javascript:x">none</a><a href="#x">here</a><svg><text>no</text></svg></body>`)
		case "/latin1":
			w.Header().Set("Content-Type", "text/plain; charset=iso-8859-1")
			_, _ = io.WriteString(w, "caf\xe9 noir")
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"a":"<b>"}`)
		case "/binary":
			_, _ = w.Write(make([]byte, 100))
		case "/missing":
			http.Error(w, "no such page", http.StatusNotFound)
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain")
			z := gzip.NewWriter(w)
			for range 64 {
				_, _ = z.Write([]byte(strings.Repeat("x", 1<<20)))
			}
			_ = z.Close()
		}
	})
	o := web.Options{Allowed: loopback}
	for _, tt := range []struct{ path, want string }{
		{"/page", "Title: A page\n\n# Head\n\nSome text and [a link](" + at.String() + "/next?a=1).\n\n- one\n- two\n  - inner\n\n```\na  b\n  c\n```\n\n1 | 2\n\nnonehere\n"},
		{"/latin1", "café noir"},
		{"/json", `{"a":"<b>"}`},
		{"/missing", "no such page\n"},
	} {
		got, err := fetch(t, o, "trusted", at.String()+tt.path)
		head, text, _ := strings.Cut(got, "\n")
		if err != nil || text != tt.want || !strings.HasPrefix(head, "["+at.String()+tt.path+": ") {
			t.Errorf("%s: got %q, %v, want %q", tt.path, got, err, tt.want)
		}
	}
	if got, err := fetch(t, o, "trusted", at.String()+"/page", "raw", "true"); err != nil || !strings.Contains(got, "<script>") {
		t.Errorf("raw: %q, %v", got, err)
	}
	if got, err := fetch(t, o, "trusted", at.String()+"/bomb", "max_bytes", "1000"); err != nil || !strings.Contains(got, "the first 1000 bytes") || len(got) > 1300 {
		t.Errorf("a bomb: %d bytes, %v", len(got), err)
	}
	if _, err := fetch(t, o, "trusted", at.String()+"/binary"); err == nil || !strings.Contains(err.Error(), "it is no text") {
		t.Errorf("no text: %v", err)
	}
	if h := asked.Load().Header; h.Get("Cookie")+h.Get("Authorization")+h.Get("Referer") != "" {
		t.Errorf("it sent %v", h)
	}
}

// A server learns nothing but the address of the page: not where a redirect came from, nor what
// it said before. One without a valid certificate, and one that floods, is an error.
func TestNothingIsSentAlong(t *testing.T) {
	var last atomic.Pointer[http.Request]
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		last.Store(r)
		switch r.URL.Path {
		case "/start":
			http.SetCookie(w, &http.Cookie{Name: "id", Value: "secret"})
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Redirect(w, r, "/end", http.StatusSeeOther)
		case "/flood":
			w.Header().Set("X-Flood", strings.Repeat("x", 1<<20))
		}
	})
	o := web.Options{Allowed: loopback}
	for range 2 {
		if _, err := fetch(t, o, "yolo", at.String()+"/start?token=t"); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for name := range last.Load().Header {
		names = append(names, name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); last.Load().URL.Path != "/end" || got != "Accept Accept-Encoding Connection User-Agent" {
		t.Errorf("%s with %s", last.Load().URL, got)
	}
	if _, err := fetch(t, o, "yolo", at.String()+"/flood"); err == nil {
		t.Error("a header of a megabyte was taken")
	}
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	secure.StartTLS()
	defer secure.Close()
	if _, err := fetch(t, o, "yolo", secure.URL); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server that nobody knows: %v", err)
	}
}

// Inputs that are no page's address, and numbers out of bounds.
func TestInput(t *testing.T) {
	for _, at := range []string{
		"", "file:///etc/passwd", "ftp://h/", "gopher://h/", "unix:///run/x", "data:text/plain,x", "//h/", "h/x", "http://", "http:///x", "http://u:p@h/", "https://u@h/",
		"http://h/\n", "http://h/" + strings.Repeat("x", 9<<10),
	} {
		if _, err := fetch(t, web.Options{Allowed: loopback}, "yolo", at); err == nil || !strings.Contains(err.Error(), `"url"`) {
			t.Errorf("%.40q: %v", at, err)
		}
	}
	for _, n := range []string{"0", "99999999"} {
		if _, err := fetch(t, web.Options{}, "yolo", "http://h/", "max_bytes", n); err == nil || !strings.Contains(err.Error(), `"max_bytes"`) {
			t.Errorf("%s: %v", n, err)
		}
	}
}

// Ways to this machine and to what only it reaches: by address, in other spellings, by name, by
// a redirect, and by a name that stands for another address when it is looked up again.
func TestServerSideRequestForgery(t *testing.T) {
	var secrets atomic.Int64
	secret := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		secrets.Add(1)
		_, _ = io.WriteString(w, "secret")
	})
	port := secret.Port()
	for _, at := range []string{
		secret.String(), "http://localhost:" + port, "http://LOCALHOST.:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port, "http://[::]:" + port,
		"http://[::1]:" + port, "http://127.0.0.2:" + port, "http://2130706433:" + port, "http://0x7f000001:" + port, "http://127.1:" + port, "http://0177.0.0.1:" + port,
		"http://10.0.0.1/", "http://192.168.0.1/", "http://172.16.0.1/", "http://100.64.0.1/", "http://[fd00::1]/", "http://224.0.0.1/",
		"http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://[::ffff:a9fe:a9fe]/", "http://100.100.100.200/", "http://[fe80::1%25lo]/",
	} {
		if text, err := fetch(t, web.Options{Resolver: names(t, nil)}, "yolo", at); err == nil {
			t.Errorf("%s: got %q", at, text)
		}
	}
	// What is allowed lets nobody reach the metadata.
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for _, at := range []string{"http://169.254.169.254/", "http://[fd00:ec2::254]/", "http://100.100.100.200/"} {
		if text, err := fetch(t, web.Options{Allowed: all}, "yolo", at); err == nil || !strings.Contains(err.Error(), "is not reached") {
			t.Errorf("%s: got %q, %v", at, text, err)
		}
	}

	// The allowed address redirects to the same server by one that is not allowed.
	for _, to := range []string{
		"http://[::1]:" + port + "/", "http://localhost.test:" + port + "/", "http://169.254.169.254/", "file:///etc/passwd", "http://u:p@127.0.0.1/", "//[::ffff:7f00:2]:" + port,
	} {
		door := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		})
		o := web.Options{Allowed: loopback, Resolver: names(t, map[string][]string{"localhost.test.": {"127.0.0.2"}})}
		if text, err := fetch(t, o, "yolo", door.String()); err == nil {
			t.Errorf("a redirect to %s: got %q", to, text)
		}
	}
	if secrets.Load() != 0 {
		t.Errorf("%d requests came to what may not be reached", secrets.Load())
	}

	// A name that is allowed at first, and then stands for another address.
	var door *url.URL
	door = serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, fmt.Sprintf("http://rebound.test:%s/again", door.Port()), http.StatusFound)
	})
	o := web.Options{Allowed: loopback, Resolver: names(t, map[string][]string{"rebound.test.": {"127.0.0.1", "127.0.0.2"}})}
	if text, err := fetch(t, o, "yolo", "http://rebound.test:"+door.Port()); err == nil || !strings.Contains(err.Error(), "127.0.0.2 is a loopback address") {
		t.Errorf("after another answer of the resolver: got %q, %v", text, err)
	}
}

// A redirect within a site is followed, a bounded number of times; one to another site only if
// nobody would have to be asked about that.
func TestRedirects(t *testing.T) {
	page := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the page") })
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/once":
			http.Redirect(w, r, "/here", http.StatusMovedPermanently)
		case "/here":
			_, _ = io.WriteString(w, "here")
		case "/away":
			http.Redirect(w, r, page.String(), http.StatusFound)
		default:
			http.Redirect(w, r, "/loop", http.StatusFound)
		}
	})
	o := web.Options{Allowed: loopback}
	for _, tt := range []struct{ preset, path, want string }{
		{"trusted", "/once", "here"},
		{"trusted", "/loop", "there are more than 5 redirects"},
		{"trusted", "/away", "which is another site"},
		{"yolo", "/away", "the page"},
	} {
		got, err := fetch(t, o, tt.preset, at.String()+tt.path)
		if !strings.Contains(got+fmt.Sprint(err), tt.want) {
			t.Errorf("%s %s: got %q, %v", tt.preset, tt.path, got, err)
		}
	}
}

// A proxy of the environment would be told every address, and look names up itself.
func TestNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("ALL_PROXY", "http://127.0.0.1:1")
	at := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "direct") })
	o := web.Options{Allowed: loopback, Resolver: names(t, map[string][]string{"page.test.": {"127.0.0.1"}})}
	if got, err := fetch(t, o, "yolo", "http://page.test:"+at.Port()); err != nil || !strings.Contains(got, "direct") {
		t.Errorf("got %q, %v", got, err)
	}
}

// A server that does not answer holds a call no longer than its turn.
func TestAborted(t *testing.T) {
	began := make(chan struct{})
	release := make(chan struct{})
	at := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "some")
		_ = http.NewResponseController(w).Flush()
		close(began)
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // ends when the request has come
		<-began
		cancel()
	}()
	_, err := web.New(web.Options{Allowed: loopback}).Run(ctx, tool.Call{Input: []byte(`{"url":"` + at.String() + `"}`)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestScope(t *testing.T) {
	for at, want := range map[string]string{
		"https://Example.com/a?b#c": "example.com: fetch https://Example.com/a?b", "http://h:80/": "h:80: fetch http://h:80/", "https://h:8443/": "h:8443: fetch https://h:8443/",
		"http://H/": "h:80: fetch http://H/", "https://h:443/": "h: fetch https://h:443/",
		"http://[2606::1]:80/": "[2606::1]:80: fetch http://[2606::1]:80/",
	} {
		scope, err := web.New(web.Options{}).Scope([]byte(`{"url":"` + at + `"}`))
		if err != nil || strings.Join(scope.Hosts, " ")+": "+scope.Summary != want || scope.Action != protocol.ActionFetch {
			t.Errorf("%s: %+v, %v", at, scope, err)
		}
	}
}

// names is a resolver that knows these names alone. Each answer of a name has its next address,
// the last one for ever.
func names(t *testing.T, known map[string][]string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var answering sync.WaitGroup
	t.Cleanup(func() {
		conn.Close()
		answering.Wait()
	})
	answering.Go(func() {
		given := map[string]int{}
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals, m.RCode = true, nil, dnsmessage.RCodeSuccess
			addresses := known[q.Name.String()]
			switch {
			case addresses == nil:
				m.RCode = dnsmessage.RCodeNameError
			case q.Type == dnsmessage.TypeA:
				at := netip.MustParseAddr(addresses[min(given[q.Name.String()], len(addresses)-1)])
				given[q.Name.String()]++
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: at.As4()},
				}}
			}
			if reply, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// Whatever a page is made of, its text comes to an end and is bounded by the page.
func FuzzToText(f *testing.F) {
	for _, s := range []string{"<a href=x>t</a>", "<pre>\n<li><h1>x", "<title>a", "<a><a>", "<svg><svg></svg>x", "&amp;&#x10ffff;&nope;", "<h9>x", "<td>a<td>b"} {
		f.Add(s)
	}
	base := &url.URL{Scheme: "https", Host: "h", Path: "/"}
	f.Fuzz(func(t *testing.T, page string) {
		text, err := web.ToText(t.Context(), page, base)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 64+64*len(page) {
			t.Errorf("%d bytes of %d", len(text), len(page))
		}
	})
}
