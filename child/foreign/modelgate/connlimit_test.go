package modelgate_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/child/foreign/modelgate"
)

// hello is a service that reads the request and greets.
func hello(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "hello")
}

func connected(t *testing.T, base, say string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // fails rather than waits
	if _, err := io.WriteString(c, say); err != nil {
		t.Fatal(err)
	}
	return c
}

// Whoever is on the machine finds the port, and can make connections without the token, that say nothing or promise a
// body. They keep the program neither from a new connection nor from the one that it has.
func TestOthersDoNotDisplaceTheProgram(t *testing.T) {
	base, token := opened(t, modelgate.Options{Provider: "p", Type: "openai", Protocol: "acp"}, hello)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	kept := func() (got string, reused bool) {
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", base+"/chat/completions", strings.NewReader(`{"model":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := transport.RoundTrip(r)
		if err != nil {
			return err.Error(), reused
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		return fmt.Sprint(res.StatusCode, " ", string(text), err), reused
	}
	const want = "200 hello<nil>"
	if got, _ := kept(); got != want {
		t.Fatalf("before: got %s", got)
	}
	for _, say := range []string{"", "POST /x HTTP/1.1\r\nHost: a\r\n", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n", "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"} {
		t.Run(fmt.Sprintf("%.40q", say), func(t *testing.T) {
			oldest := connected(t, base, say)
			for range modelgate.MaxUnauthenticated + 60 {
				connected(t, base, say)
			}
			if got := ask(t, "POST", base+"/chat/completions", `{"model":"m"}`, "Authorization", "Bearer "+token); got != want {
				t.Errorf("a new connection of the program: got %s, want %s", got, want)
			}
			if got, reused := kept(); got != want || !reused {
				t.Errorf("the one that it had: got %s, reused %t, want %s", got, reused, want)
			}
			// The oldest one has given way, behind its answer if it had one.
			if _, err := io.Copy(io.Discard, oldest); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the oldest of the others: %v", err)
			}
		})
	}
}

// Others do not use up the files that an agent's limits leave to its process.
func TestFewFiles(t *testing.T) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	restore := func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files) }
	t.Cleanup(restore)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 200, Max: files.Max}); err != nil {
		t.Fatal(err)
	}
	base, _ := opened(t, modelgate.Options{Provider: "p", Type: "openai", Protocol: "acp"}, hello)
	ask(t, "GET", base+"/models", "") // so it serves
	restore()
	oldest := connected(t, base, "")
	for range 50 {
		connected(t, base, "")
	}
	begun := time.Now()
	if _, err := io.Copy(io.Discard, oldest); !errors.Is(err, syscall.ECONNRESET) || time.Since(begun) >= modelgate.HeaderTimeout {
		t.Errorf("the oldest of 51 is not closed where 200 files may be open: %v after %v", err, time.Since(begun))
	}
}

// A request without the token is answered before its body has come, and its connection ends soon.
func TestNoBodyWithoutToken(t *testing.T) {
	base, _ := opened(t, modelgate.Options{Provider: "p", Type: "openai", Protocol: "acp"}, hello)
	conns, begun := map[string]net.Conn{}, time.Now()
	for _, head := range []string{"Content-Length: 30000000", "Content-Length: 100", "Transfer-Encoding: chunked", "Expect: 100-continue\r\nContent-Length: 30000000"} {
		conns[head] = connected(t, base, "POST /chat/completions HTTP/1.1\r\nHost: a\r\n"+head+"\r\n\r\n")
	}
	for head, c := range conns {
		r := bufio.NewReader(c)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("%s: %v", head, err)
		}
		answer, err := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusUnauthorized || !res.Close || !strings.Contains(string(answer), "authentication_error") || err != nil {
			t.Errorf("%s: got %d, close %t, %s, %v", head, res.StatusCode, res.Close, answer, err)
		}
		rest, err := io.ReadAll(r)
		if len(rest) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) || time.Since(begun) > modelgate.DropTime+20*time.Second {
			t.Errorf("%s: then got %q, %v, after %v", head, rest, err, time.Since(begun))
		}
	}
	// One who sends all of it first still sees the answer.
	if got := ask(t, "POST", base+"/chat/completions", strings.Repeat(" ", 4<<20)); !strings.HasPrefix(got, "401 ") {
		t.Errorf("a long body: got %s", got)
	}
}

// The program's own connections are bounded apart, and one more is told so.
func TestConnectionsOfTheProgram(t *testing.T) {
	base, token := opened(t, modelgate.Options{Provider: "p", Type: "openai", Protocol: "acp"}, hello)
	request := "GET /models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + "\r\n\r\n"
	status := func(c net.Conn) int {
		t.Helper()
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	var all []net.Conn
	for range modelgate.MaxConnections {
		c := connected(t, base, request)
		if got := status(c); got != http.StatusOK {
			t.Fatalf("connection %d: got %d", len(all)+1, got)
		}
		all = append(all, c)
	}
	more := connected(t, base, request)
	if got := status(more); got != http.StatusTooManyRequests {
		t.Errorf("one more: got %d", got)
	}
	if n, err := io.Copy(io.Discard, more); n > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("one more is not closed: %v", err)
	}
	// One that ends makes room for another. A request with "Connection: close" ends when its connection is closed.
	if _, err := io.WriteString(all[0], strings.Replace(request, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(all[0]); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200") {
		t.Errorf("the first one: got %q, %v", got, err)
	}
	if got := status(connected(t, base, request)); got != http.StatusOK {
		t.Errorf("after the end of one: got %d", got)
	}
	for i, c := range all[1:] {
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if got := status(c); got != http.StatusOK {
			t.Errorf("connection %d has not stayed: got %d", i+2, got)
		}
	}
}

// pipes is a listener of connections within the test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }

func (pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Without the token a connection has a few seconds, however it spends them.
func TestTimeWithoutToken(t *testing.T) {
	for name, say := range map[string]string{"says nothing": "", "one byte at a time": "POST /x HTTP/1.1\r\nHost: a\r\nX-Padding: " + strings.Repeat("x", 100)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate, err := modelgate.New(modelgate.Options{Provider: "p", Type: "openai", Protocol: "acp", Broker: http.DefaultTransport})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				served := make(chan struct{})
				ln := make(pipes)
				go func() {
					defer close(served)
					gate.ServeListener(ctx, ln)
				}()
				ours, theirs := net.Pipe()
				begun := time.Now()
				ln <- theirs
				wrote := make(chan struct{})
				go func() {
					defer close(wrote)
					tick := time.NewTicker(500 * time.Millisecond)
					defer tick.Stop()
					for i := range len(say) {
						if _, err := ours.Write([]byte(say[i : i+1])); err != nil {
							return
						}
						<-tick.C
					}
				}()
				if _, err := io.Copy(io.Discard, ours); err != nil {
					t.Error(err)
				}
				if got := time.Since(begun); got != modelgate.HeaderTimeout || got > 5*time.Second {
					t.Errorf("it was closed after %v, want %v", got, modelgate.HeaderTimeout)
				}
				<-wrote
				cancel()
				<-served
			})
		})
	}
}
