package bridge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"nexus.internal/bridge"
	"nexus.internal/protocol/jsonrpc"
)

// answers sends bytes on a connection of its own, which stays open, and returns all
// answers until the server ends it.
func (r *rig) answers(sent string) []*http.Response {
	r.t.Helper()
	conn := r.dial()
	if _, err := io.WriteString(conn, sent); err != nil {
		r.t.Fatal(err)
	}
	var all []*http.Response
	for in := bufio.NewReader(conn); ; {
		response, err := http.ReadResponse(in, nil)
		if e, ok := err.(net.Error); ok && e.Timeout() {
			r.t.Fatalf("after %d answers the connection is still open", len(all))
		}
		if err != nil {
			return all
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		response.Body = io.NopCloser(strings.NewReader(string(body)))
		all = append(all, response)
	}
}

// A request that net/http reads by its length, and who stands in between by its
// chunks, or the other way round, hides another one: nothing behind it is read.
func TestAttackChunksWhereNoneAre(t *testing.T) {
	r := rigged(t, nil)
	hidden := withLength(r.head("POST /rpc HTTP/1.1"), callBody("shutdown_server"))
	length := fmt.Sprintf("Content-Length: %d\r\n", len(list))
	for _, test := range []struct{ name, request string }{
		{"HTTP/1.0, kept alive", r.head("POST /rpc HTTP/1.0") + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n" + length + "\r\n" + list},
		{"HTTP/1.0, a GET", r.head("GET /readyz HTTP/1.0") + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"HTTP/1.0, another coding", r.head("POST /rpc HTTP/1.0") + "Connection: keep-alive\r\nTransfer-Encoding: gzip\r\n" + length + "\r\n" + list},
		{"HTTP/1.1, a length before", r.head("POST /rpc HTTP/1.1") + length + "Transfer-Encoding: chunked\r\n\r\n" + chunked(list)},
		{"HTTP/1.1, a length behind, in other case", r.head("POST /rpc HTTP/1.1") + "transfer-encoding: chunked\r\ncontent-LENGTH: 3\r\n\r\n" + chunked(list)},
		{"HTTP/1.1, lines ended by LF", strings.ReplaceAll(r.head("POST /rpc HTTP/1.1")+length+"Transfer-Encoding: chunked\r\n\r\n", "\r\n", "\n") + chunked(list)},
		{"behind a good request", withLength(r.head("POST /rpc HTTP/1.1"), list) + "\r\n" +
			r.head("POST /rpc HTTP/1.1") + length + "Transfer-Encoding: chunked\r\n\r\n" + chunked(list)},
		{"behind a good GET", r.head("GET /readyz HTTP/1.1") + "\r\n" +
			r.head("POST /rpc HTTP/1.1") + length + "Transfer-Encoding: chunked\r\n\r\n" + chunked(list)},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := r.answers(test.request + hidden)
			if len(all) == 0 {
				t.Fatal("no answer")
			}
			if good := strings.HasPrefix(test.name, "behind"); good != (len(all) == 2) || good && all[0].StatusCode != 200 {
				t.Fatalf("%d answers, the first HTTP %d", len(all), all[0].StatusCode)
			}
			if last := all[len(all)-1]; last.StatusCode != 200 || !last.Close {
				t.Errorf("HTTP %d, close %v; want the answer to the first request and the end", last.StatusCode, last.Close)
			}
		})
	}
	r.works() // nobody shut it down
}

func chunked(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }

// Requests that are sent before the answers come are all answered, whatever the
// pieces they come in.
func TestFramingInPieces(t *testing.T) {
	r := rigged(t, nil)
	one := withLength(r.head("POST /rpc HTTP/1.1"), list)
	all := one + "\r\n" + one + r.head("GET /readyz HTTP/1.1") + "\r\n" + strings.ReplaceAll(r.head("GET /readyz HTTP/1.1")+"\r\n", "\r\n", "\n") +
		r.head("POST /rpc HTTP/1.1") + "Transfer-Encoding: chunked\r\n\r\n" + chunked(list)
	for _, piece := range []int{1, 2, 7, 100, len(all)} {
		conn := r.dial()
		go func() {
			for rest := all; rest != ""; {
				n := min(piece, len(rest))
				if _, err := io.WriteString(conn, rest[:n]); err != nil {
					return
				}
				rest = rest[n:]
			}
		}()
		in := bufio.NewReader(conn)
		for i := range 5 {
			if response, body := readResponse(t, in); response.StatusCode != 200 || response.Close != (i == 4) {
				t.Fatalf("pieces of %d bytes, answer %d: HTTP %d, close %v, %s", piece, i, response.StatusCode, response.Close, body)
			}
		}
	}
}

// Any other version is none that was read by its rules.
func TestAttackOtherVersions(t *testing.T) {
	r := rigged(t, nil)
	for _, version := range []string{"HTTP/1.2", "HTTP/1.9", "HTTP/2.0", "HTTP/0.9", "HTTP/3.0"} {
		response, body := r.raw(withLength(r.head("POST /rpc "+version), list))
		if response.StatusCode != 505 || !response.Close {
			t.Errorf("%s: HTTP %d, close %v, %s", version, response.StatusCode, response.Close, body)
		}
		wantWhole(t, body, jsonrpc.CodeInvalidRequest)
	}
	if response, _ := r.raw(withLength(r.head("POST /rpc HTTP/1.0"), list)); response.StatusCode != 200 {
		t.Errorf("HTTP/1.0: HTTP %d", response.StatusCode)
	}
}

// The bound of a first request's headers is the one that SPEC names, to the byte.
func TestAttackOneByteOfHeaderTooMuch(t *testing.T) {
	r := rigged(t, nil)
	const most = 64 << 10
	padded := func(size int) string {
		head := r.head("POST /rpc HTTP/1.1") + fmt.Sprintf("Content-Length: %d\r\nX: ", len(list))
		return head + strings.Repeat("x", size-len(head)-4) + "\r\n\r\n" + list
	}
	for size, want := range map[int]int{most: 200, most + 1: 431, 66_000: 431} {
		response, body := r.raw(padded(size))
		if response.StatusCode != want {
			t.Errorf("%d bytes: HTTP %d %.100s, want %d", size, response.StatusCode, body, want)
		}
	}
}

// Who is refused hears it at once, however slowly the rest of the request comes, and
// is not waited for.
func TestAttackTrickledBodies(t *testing.T) {
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.ReadTimeout, o.RequestsPerMinute = time.Hour, 1 })
	r.works() // uses up the key's share
	key := "Authorization: Bearer " + r.key.Reveal() + "\r\n"
	for _, test := range []struct {
		name, line, headers string
		status              int
	}{
		{"another host", "POST /rpc HTTP/1.1", key, 403},
		{"a web page", "POST /rpc HTTP/1.1", key + "Origin: https://evil.example\r\n", 403},
		{"no such scheme", "POST /rpc HTTP/1.1", "Authorization: Basic eDp5\r\n", 401},
		{"a wrong key", "POST /rpc HTTP/1.1", "Authorization: Bearer nxk_" + strings.Repeat("A", 43) + "\r\n", 403},
		{"no key where none is signed for", "POST /nowhere HTTP/1.1", "", 401},
		{"no path", "POST /nowhere HTTP/1.1", key, 429},
		{"no path, with a key that may ask", "POST /nowhere HTTP/1.1", "FRESH", 404},
		{"another method", "PUT /rpc HTTP/1.1", key, 405},
		{"another type", "POST /rpc HTTP/1.1", key + "Content-Type: text/plain\r\n", 415},
		{"another type, without a key", "POST /rpc HTTP/1.1", "Content-Type: text/plain\r\n", 401},
		{"too many", "POST /rpc HTTP/1.1", key, 429},
		{"a GET", "GET /healthz HTTP/1.1", "", 400},
		{"a GET of the page", "GET / HTTP/1.1", "", 400},
		{"a GET with the key", "GET /metrics HTTP/1.1", key, 429},
	} {
		for name, length := range map[string]string{"declared": "Content-Length: 1000", "large": "Content-Length: 1000000", "chunked": "Transfer-Encoding: chunked"} {
			t.Run(test.name+", "+name, func(t *testing.T) {
				conn, headers, host := r.dial(), test.headers, r.addr
				if headers == "FRESH" {
					bearer, _ := r.scoped("read", "")
					headers = "Authorization: " + bearer + "\r\n"
				}
				if test.name == "another host" {
					host = "evil.example"
				}
				// One byte of the body has come, and the others do not.
				if _, err := io.WriteString(conn, test.line+"\r\nHost: "+host+"\r\n"+headers+length+"\r\n\r\n1"); err != nil {
					t.Fatal(err)
				}
				in := bufio.NewReader(conn)
				response, body := readResponse(t, in)
				if response.StatusCode != test.status || !response.Close {
					t.Errorf("HTTP %d, close %v, %s; want %d and the end", response.StatusCode, response.Close, body, test.status)
				}
				if _, err := in.ReadByte(); err != io.EOF { // its half of the connection is over
					t.Errorf("after the answer: %v", err)
				}
			})
		}
	}
}

// A client that sends all of its body before it reads still learns why it was refused.
func TestRefusalReachesTheBusyClient(t *testing.T) {
	r := rigged(t, nil)
	response, body := r.do("POST", "/rpc", zeros(4<<20), "Authorization", "Bearer nxk_"+strings.Repeat("A", 43))
	if response.StatusCode != 403 {
		t.Errorf("HTTP %d %s", response.StatusCode, body)
	}
}
