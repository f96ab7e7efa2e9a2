package bridge_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/httpd"
	"nexus.internal/protocol/jsonrpc"
)

// Each test here is named after an attack. Those on the framing of HTTP write the
// bytes themselves, because net/http would not.

// call is the body of a call without parameters.
func callBody(method string) string { return `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}` }

// works checks that a request with the key is answered as ever.
func (r *rig) works() {
	r.t.Helper()
	if response, body := r.post("/rpc", list); response.StatusCode != 200 || !gjson.Get(body, "result.agents").Exists() {
		r.t.Errorf("a good request: HTTP %d %s", response.StatusCode, body)
	}
}

func TestAttackWithoutKey(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	for _, route := range []string{
		"POST /", "POST /rpc", "POST /agent/a", "POST /agent/nobody", "GET /agent/a/events", "GET /agent/nobody/events",
		"GET /readyz", "HEAD /readyz", "GET /nowhere", "POST /nowhere", "POST /agent/a/", "GET /events", "GET /metrics",
	} {
		t.Run(route, func(t *testing.T) {
			for header, want := range map[string]int{
				"": 401, "Authorization: \r\n": 401, "Authorization: Bearer\r\n": 401, "Authorization: Bearer  \r\n": 401,
				"Authorization: Basic eDp5\r\n": 401, "Authorization: Bearer nxk_x\r\n": 403,
				"X-Api-Key: " + r.key.Reveal() + "\r\n":                                       401,
				"Cookie: key=" + r.key.Reveal() + "\r\n":                                      401,
				"Authorization: Bearer " + r.key.Reveal()[:20] + "\r\n":                       403,
				"Authorization: Bearer " + r.key.Reveal() + "x\r\n":                           403,
				"Authorization: Bearer " + r.key.Reveal() + ", nxk_x\r\n":                     403,
				"Authorization: Bearer " + strings.ToUpper(r.key.Reveal()) + "\r\n":           403,
				"Authorization: Bearer x\r\nAuthorization: Bearer " + r.key.Reveal() + "\r\n": 403,
			} {
				conn := r.dial()
				request := withLength(route+"?key="+r.key.Reveal()+" HTTP/1.1\r\nHost: "+r.addr+"\r\n"+header, list)
				if _, err := io.WriteString(conn, request); err != nil {
					t.Fatal(err)
				}
				method, _, _ := strings.Cut(route, " ")
				response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(response.Body)
				response.Body.Close()
				if response.StatusCode != want {
					t.Errorf("%q: HTTP %d, want %d", strings.ReplaceAll(header, r.key.Reveal(), "KEY"), response.StatusCode, want)
				}
				if want == 401 && response.Header.Get("WWW-Authenticate") == "" {
					t.Error("no WWW-Authenticate")
				}
				if method != "HEAD" {
					wantWhole(t, string(body), jsonrpc.CodeNotAuthenticated)
				}
				conn.Close()
			}
		})
	}
	if response, _ := r.do("GET", "/healthz", nil, "Authorization", ""); response.StatusCode != 200 {
		t.Errorf("healthz without a key: HTTP %d", response.StatusCode)
	}
}

// A name that an attacker's DNS turns to 127.0.0.1 stays the attacker's name.
func TestAttackDNSRebinding(t *testing.T) {
	r := rigged(t, nil)
	port := r.addr[strings.LastIndexByte(r.addr, ':'):]
	for _, host := range []string{
		"evil.example" + port, "127.0.0.1.evil.example" + port, "localhost.evil.example" + port, "localhost", "127.0.0.1", "127.0.0.1:1",
		"127.0.0.2" + port, "0.0.0.0" + port, "[::]" + port, "2130706433" + port, "127.1" + port, "localhost." + port, "a@127.0.0.1" + port, "",
	} {
		for _, path := range []string{"POST /rpc", "GET /healthz", "GET /readyz"} {
			response, body := r.raw(withLength(path+" HTTP/1.1\r\nHost: "+host+"\r\nAuthorization: Bearer "+r.key.Reveal()+"\r\n", list))
			if response.StatusCode != 403 && response.StatusCode != 400 || gjson.Get(body, "result").Exists() {
				t.Errorf("%s with Host %q: HTTP %d %s", path, host, response.StatusCode, body)
			}
		}
	}
	r.works()
}

// Web pages are refused whatever they ask, before their key is looked at; those
// that are allowed are allowed by their whole name.
func TestAttackFromWebPages(t *testing.T) {
	const ours = "https://app.example"
	closed := rigged(t, nil)
	open := rigged(t, func(_ *rig, o *bridge.Options) { o.AllowedOrigins = []string{ours} })
	preflight := []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization"}
	for _, origin := range []string{"null", "https://evil.example", "http://app.example", ours + ":444", ours + ".evil.example", "HTTPS://APP.EXAMPLE", "*", ours + "," + ours} {
		for _, r := range []*rig{closed, open} {
			for _, method := range []string{"OPTIONS", "POST"} {
				response, body := r.do(method, "/rpc", strings.NewReader(list), append(preflight, "Origin", origin)...)
				if response.StatusCode != 403 || gjson.Get(body, "error.data.type").Str != "FORBIDDEN_ORIGIN" {
					t.Errorf("%s from %s: HTTP %d %s", method, origin, response.StatusCode, body)
				}
				for name := range response.Header {
					if strings.HasPrefix(name, "Access-Control-") {
						t.Errorf("%s from %s is told %s", method, origin, name)
					}
				}
			}
		}
	}
	if response, _ := closed.do("OPTIONS", "/rpc", nil, append(preflight, "Origin", ours)...); response.StatusCode != 403 {
		t.Errorf("an origin that is not configured: HTTP %d", response.StatusCode)
	}
	response, body := open.do("OPTIONS", "/rpc", nil, append(preflight, "Origin", ours, "Authorization", "")...)
	if response.StatusCode != 204 || body != "" || response.Header.Get("Access-Control-Allow-Methods") != "POST" ||
		!strings.Contains(response.Header.Get("Access-Control-Allow-Headers"), "Authorization") ||
		response.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("preflight: HTTP %d %v", response.StatusCode, response.Header)
	}
	response, _ = open.post("/rpc", list, "Origin", ours)
	if response.StatusCode != 200 || response.Header.Get("Access-Control-Allow-Origin") != ours || !strings.Contains(fmt.Sprint(response.Header.Values("Vary")), "Origin") {
		t.Errorf("a call from there: HTTP %d %v", response.StatusCode, response.Header)
	}
	if response, _ = open.post("/rpc", list, "Origin", ours, "Authorization", ""); response.StatusCode != 401 {
		t.Errorf("a call from there without a key: HTTP %d", response.StatusCode)
	}
}

// Two lengths, two hosts, or a target that names another host: whoever stands in
// between may read it otherwise than we do, so nobody does.
func TestAttackRequestSmuggling(t *testing.T) {
	r := rigged(t, nil)
	inner := withLength(r.head("POST /rpc HTTP/1.1"), callBody("shutdown_server"))
	for _, test := range []struct{ name, request string }{
		{"Content-Length with Transfer-Encoding", r.head("POST /rpc HTTP/1.1") + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner},
		{"Transfer-Encoding with Content-Length", r.head("POST /rpc HTTP/1.1") + "Transfer-Encoding: chunked\r\nContent-Length: " + fmt.Sprint(5+len(inner)) + "\r\n\r\n0\r\n\r\n" + inner},
		{"two lengths", r.head("POST /rpc HTTP/1.1") + "Content-Length: 0\r\nContent-Length: " + fmt.Sprint(len(inner)) + "\r\n\r\n" + inner},
		{"a list of lengths", r.head("POST /rpc HTTP/1.1") + "Content-Length: 0, " + fmt.Sprint(len(inner)) + "\r\n\r\n" + inner},
		{"a signed length", r.head("POST /rpc HTTP/1.1") + "Content-Length: +0\r\n\r\n" + inner},
		{"two codings", r.head("POST /rpc HTTP/1.1") + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner},
		{"a coding in disguise", r.head("POST /rpc HTTP/1.1") + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n" + inner},
		{"a space before the colon", r.head("POST /rpc HTTP/1.1") + "Content-Length : 0\r\n\r\n" + inner},
		{"a folded header", r.head("POST /rpc HTTP/1.1") + "X: y\r\n Content-Length: 0\r\nTransfer-Encoding: xchunked\r\n\r\n" + inner},
		{"a bad chunk", r.head("POST /rpc HTTP/1.1") + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n" + inner},
		{"a coding in HTTP/1.0", r.head("POST /rpc HTTP/1.0") + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner},
		{"two hosts", r.head("POST /rpc HTTP/1.1") + "Host: " + r.addr + "\r\n\r\n" + inner},
		{"HTTP/1.0 without Host", "POST /rpc HTTP/1.0\r\nAuthorization: Bearer " + r.key.Reveal() + "\r\n\r\n" + inner},
		{"an absolute-form target", r.head("POST http://"+r.addr+"/rpc HTTP/1.1") + "\r\n" + inner},
		{"an authority-form target", r.head("CONNECT "+r.addr+" HTTP/1.1") + "\r\n" + inner},
		{"HTTP/2 by prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + inner},
		{"an upgrade", r.head("POST /rpc HTTP/1.1") + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: +1\r\n\r\n" + inner},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn := r.dial()
			if _, err := io.WriteString(conn, test.request); err != nil {
				t.Fatal(err)
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			all, _ := io.ReadAll(conn) // a reset is an end, too
			if text := string(all); strings.Contains(text, `"result"`) || !strings.HasPrefix(text, "HTTP/1.") || strings.HasPrefix(text, "HTTP/1.1 2") {
				t.Errorf("got %s", text)
			}
		})
	}
	r.works() // nobody shut it down
}

// A path is compared as it was written.
func TestAttackPathTricks(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	for _, path := range []string{
		"//", "/rpc/", "/RPC", "/rpc%2f", "/%72pc", "/./rpc", "/agent/../rpc", "/agent/a/../../rpc", "/agent//a", "/agent/a/", "/agent/%61",
		"/agent/a%00", "/agent/a;x", "/agent/..%2frpc", "/agent/%2e%2e%2frpc", "/agent/a#x", "/agent/a/events/", "/agent/a%2fevents", "/healthz/", "/healthz%2f", "/agent/",
	} {
		for _, method := range []string{"POST", "GET"} {
			response, body := r.raw(withLength(r.head(method+" "+path+" HTTP/1.1"), list))
			if response.StatusCode != 404 && response.StatusCode != 400 || response.Header.Get("Location") != "" || gjson.Get(body, "result").Exists() {
				t.Errorf("%s %s: HTTP %d %s", method, path, response.StatusCode, body)
			}
		}
	}
}

// Members that two readers could understand differently are refused.
func TestAttackAmbiguousMembers(t *testing.T) {
	r := rigged(t, nil)
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"list_agents","method":"shutdown_server"}`,
		`{"jsonrpc":"2.0","id":1,"Method":"shutdown_server","method":"list_agents"}`,
		`{"jsonrpc":"2.0","id":1,"method":"list_agents","\u006dethod":"shutdown_server"}`,
		`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"a","agent_id":"b"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"Agent_id":"a"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"list_agents"}{"jsonrpc":"2.0","id":1,"method":"shutdown_server"}`,
		"\xef\xbb\xbf" + list, "[" + list + "],", `{"jsonrpc":"2.0","id":1,"method":"list_agents` + "\xff" + `"}`,
	} {
		response, answer := r.post("/rpc", body)
		if gjson.Get(answer, "result").Exists() || !gjson.Get(answer, "error.code").Exists() {
			t.Errorf("%s: HTTP %d %s", body, response.StatusCode, answer)
		}
	}
	if agents := r.sup.Agents(); len(agents) != 0 {
		t.Errorf("agents were made: %v", agents)
	}
	r.works()
}

func TestAttackHeaderFlood(t *testing.T) {
	r := rigged(t, nil)
	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, "X-%d: y\r\n", i)
	}
	for name, header := range map[string]string{"many": many.String(), "long": "X: " + strings.Repeat("y", 1<<20) + "\r\n"} {
		conn := r.dial()
		go func() { _, _ = io.WriteString(conn, r.head("POST /rpc HTTP/1.1")+header) }() // it may break off
		response, body := readResponse(t, bufio.NewReader(conn))
		if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: HTTP %d %s, want 431", name, response.StatusCode, body)
		}
		conn.Close()
	}
	r.works()
}

func packed(t *testing.T, plain io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := io.Copy(w, plain)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// zeros are n bytes of white space, which JSON skips.
func zeros(n int64) io.Reader { return io.LimitReader(blanks{}, n) }

type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestAttackGzipBomb(t *testing.T) {
	r := rigged(t, nil)
	fits := int64(httpd.MaxBody - len(list))
	good := packed(t, io.MultiReader(zeros(fits), strings.NewReader(list)))
	bomb := packed(t, io.MultiReader(zeros(1<<28), strings.NewReader(list)))
	member := packed(t, strings.NewReader(""))
	for _, test := range []struct {
		name string
		body []byte
		want int
		// chunked says that the length is not declared.
		chunked bool
	}{
		{"at the limit", good, 200, false},
		{"one byte more", packed(t, io.MultiReader(zeros(fits+1), strings.NewReader(list))), 413, false},
		{"256 MiB", bomb, 413, false},
		{"in many members", append(bytes.Repeat(packed(t, zeros(1<<16)), 17), good...), 413, false},
		{"a million empty members", bytes.Repeat(member, httpd.MaxBody/len(member)+1), 413, false},
		{"a bomb in a bomb", packed(t, bytes.NewReader(bomb)), 400, false},
		{"cut off", good[:len(good)/2], 400, false},
		{"a wrong checksum", append(good[:len(good)-8:len(good)-8], make([]byte, 8)...), 400, false},
		{"something after it", append(bytes.Clone(good), "more"...), 400, false},
		{"no gzip", []byte(list), 400, false},
		{"empty members without a length", append(bytes.Repeat(member, httpd.MaxBody/len(member)+1), packed(t, strings.NewReader(list))...), 413, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var sent io.Reader = bytes.NewReader(test.body)
			if test.chunked {
				sent = io.MultiReader(sent) // of which nobody knows how long it is
			}
			response, body := r.do("POST", "/rpc", sent, "Content-Encoding", "gzip")
			if response.StatusCode != test.want {
				t.Errorf("HTTP %d %.200s, want %d", response.StatusCode, body, test.want)
			}
			if test.want != 200 && !gjson.Get(body, "error.code").Exists() {
				t.Errorf("got %.200s", body)
			}
		})
	}
	r.works()
}

// Long answers are packed for those who take it, and for nobody else.
func TestPackedAnswers(t *testing.T) {
	r := rigged(t, nil)
	for i := range 20 {
		r.create(fmt.Sprintf("agent-%d", i))
	}
	for accept, want := range map[string]string{
		"gzip": "gzip", "br, GZIP;q=0.5": "gzip", "gzip;q=0": "", "gzip; q=0.0": "", "identity": "", "br": "", "x": "",
	} {
		response, body := r.post("/rpc", list, "Accept-Encoding", accept)
		if got := response.Header.Get("Content-Encoding"); got != want {
			t.Errorf("Accept-Encoding %q: Content-Encoding %q, want %q", accept, got, want)
		}
		if want == "gzip" {
			in, err := gzip.NewReader(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			body = string(plain)
		}
		if n := len(gjson.Get(body, "result.agents").Array()); n != 20 {
			t.Errorf("Accept-Encoding %q: %d agents", accept, n)
		}
	}
	if response, _ := r.post("/rpc", callBody("list_keys"), "Accept-Encoding", "gzip"); response.Header.Get("Content-Encoding") != "" {
		t.Error("a short answer is packed")
	}
}

// Who sends slowly, or nothing, without a key, keeps nobody who has one waiting:
// neither by bodies that could be signed nor by connections.
func TestAttackSlowBodiesWithoutKey(t *testing.T) {
	r := rigged(t, nil)
	for range 40 {
		conn := r.dial()
		if _, err := io.WriteString(conn, "POST /rpc HTTP/1.1\r\nHost: "+r.addr+"\r\nContent-Length: 1000000\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
	}
	r.works()
	// Those that are read take all the room there is for them.
	deadline := time.Now().Add(patience)
	for {
		response, _ := r.raw(withLength("POST /rpc HTTP/1.1\r\nHost: "+r.addr+"\r\n", list))
		if response.StatusCode == 429 && response.Header.Get("Retry-After") == "1" {
			break
		}
		if response.StatusCode != 401 || time.Now().After(deadline) {
			t.Fatalf("another body without a key: HTTP %d", response.StatusCode)
		}
	}
}

// The clock of a key with a limit: what is too much says when to come again, and a
// batch is as many as it has items.
func TestAttackTooManyRequests(t *testing.T) {
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.RequestsPerMinute = 5 })
	if response, body := r.post("/rpc", "["+list+","+list+","+list+"]"); response.StatusCode != 200 {
		t.Fatalf("HTTP %d %s", response.StatusCode, body)
	}
	response, body := r.post("/rpc", "["+list+","+list+","+list+"]")
	if response.StatusCode != 429 || response.Header.Get("Retry-After") != "12" || gjson.Get(body, "error.data.type").Str != "RATE_LIMITED" ||
		gjson.Get(body, "error.data.details").Str != "more requests came than may be answered; try again in 12 s" {
		t.Errorf("one too many: HTTP %d, Retry-After %q, %s", response.StatusCode, response.Header.Get("Retry-After"), body)
	}
	wantWhole(t, body, jsonrpc.CodeRateLimited)
	// What never fits is not to be sent again, and takes nothing.
	response, body = r.post("/rpc", "["+strings.Repeat(list+",", 5)+list+"]")
	if _, again := response.Header["Retry-After"]; response.StatusCode != 400 || again || !strings.Contains(body, "6 requests is more than the 5 a minute") {
		t.Errorf("more than the rate: HTTP %d, %v, %s", response.StatusCode, response.Header, body)
	}
	wantWhole(t, body, jsonrpc.CodeInvalidRequest)
	r.works()
	if response, _ := r.do("GET", "/readyz", nil); response.StatusCode != 200 {
		t.Errorf("the fifth: HTTP %d", response.StatusCode)
	}
	for _, route := range []string{"GET /readyz", "GET /agent/a/events", "POST /rpc", "POST /agent/a"} {
		method, path, _ := strings.Cut(route, " ")
		if response, _ := r.do(method, path, strings.NewReader(list)); response.StatusCode != 429 {
			t.Errorf("%s: HTTP %d, want 429", route, response.StatusCode)
		}
	}
	if response, _ := r.do("GET", "/healthz", nil); response.StatusCode != 200 {
		t.Errorf("healthz: HTTP %d", response.StatusCode)
	}
	// Another key has a share of its own, and wrong ones take nothing from anybody.
	key, _, err := r.keys.Add(grant("read", ""))
	if err != nil {
		t.Fatal(err)
	}
	if response, _ := r.post("/rpc", list, "Authorization", "Bearer "+key.Reveal()); response.StatusCode != 200 {
		t.Errorf("another key: HTTP %d", response.StatusCode)
	}
}
