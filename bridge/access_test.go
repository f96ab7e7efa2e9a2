package bridge_test

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/protocol/jsonrpc"
)

// Of two headers, one who stands in between might check the other: neither counts,
// also if one or both of them are right.
func TestAttackTwoAuthorizations(t *testing.T) {
	r := rigged(t, nil)
	good, bad := "Authorization: Bearer "+r.key.Reveal()+"\r\n", "Authorization: Bearer nxk_x\r\n"
	for _, headers := range []string{
		good + good, good + bad, bad + good, good + "Authorization: Basic eDp5\r\n", good + "Authorization:\r\n", "Authorization:\r\n" + good,
		strings.TrimSpace(good) + ", Bearer nxk_x\r\n", strings.TrimSpace(good) + " x\r\n",
	} {
		response, body := r.raw(withLength("POST /rpc HTTP/1.1\r\nHost: "+r.addr+"\r\n"+headers, list))
		if response.StatusCode != 401 && response.StatusCode != 403 {
			t.Errorf("%q: HTTP %d %s", strings.ReplaceAll(headers, r.key.Reveal(), "KEY"), response.StatusCode, body)
		}
		wantWhole(t, body, jsonrpc.CodeNotAuthenticated)
	}
	r.works()
}

// Of several origins none is taken, whatever they are; and an origin is what a browser
// writes, to the letter.
func TestAttackSeveralOrOtherOrigins(t *testing.T) {
	const allowed = "https://app.example"
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.AllowedOrigins = []string{allowed} })
	own := "http://" + r.addr
	port := r.addr[strings.LastIndexByte(r.addr, ':'):]
	for _, origins := range [][]string{
		{own, own},
		{own, "https://evil.example"},
		{"https://evil.example", own},
		{allowed, allowed},
		{allowed, own},
		{own, ""},
		{""},
		{allowed, "https://evil.example"},
		{"HTTP://" + r.addr},
		{"http://LOCALHOST" + port},
		{"http://127.0.0.1." + port},
		{own + "/"},
		{own + "."},
		{allowed + "."},
		{allowed + "/"},
		{"https://APP.example"},
		{allowed + ":443"},
		{" " + allowed + " x"},
		{"https://app.example.:443"},
		{"http://127.0.0.1"},
		{"http://" + strings.ReplaceAll(r.addr, "127.0.0.1", "127.0.0.2")},
		{r.addr},
		{"//" + r.addr},
	} {
		for _, line := range []string{"POST /rpc HTTP/1.1", "GET / HTTP/1.1", "GET /healthz HTTP/1.1"} {
			request := r.head(line)
			for _, origin := range origins {
				request += "Origin: " + origin + "\r\n"
			}
			if strings.HasPrefix(line, "POST") {
				request = withLength(request, list)
			} else {
				request += "\r\n"
			}
			if response, body := r.raw(request); response.StatusCode != 403 || gjson.Get(body, "error.data.type").Str != "FORBIDDEN_ORIGIN" {
				t.Errorf("%s with Origin %q: HTTP %d %.200s", line, origins, response.StatusCode, body)
			}
		}
	}
	for _, good := range []string{own, allowed} {
		if response, body := r.post("/rpc", list, "Origin", good); response.StatusCode != 200 {
			t.Errorf("Origin %s: HTTP %d %s", good, response.StatusCode, body)
		}
	}
	if response, _ := r.raw(withLength(strings.Replace(r.head("POST /rpc HTTP/1.1"), "127.0.0.1", "LOCALHOST", 1)+"Origin: http://localhost"+port+"\r\n", list)); response.StatusCode != 200 {
		t.Errorf("our page, asked for by a name in capitals: HTTP %d", response.StatusCode)
	}
}

// Two names for one server, or one that is no name: nobody knows who is meant.
func TestAttackTwoHosts(t *testing.T) {
	r := rigged(t, nil)
	for _, hosts := range [][]string{
		{r.addr, r.addr}, {r.addr, "evil.example"}, {"evil.example", r.addr}, {r.addr + "," + r.addr}, {r.addr + " " + r.addr}, {r.addr + "."},
	} {
		request := "POST /rpc HTTP/1.1\r\nAuthorization: Bearer " + r.key.Reveal() + "\r\n"
		for _, host := range hosts {
			request += "Host: " + host + "\r\n"
		}
		response, body := r.raw(withLength(request, list))
		if response.StatusCode != 403 && response.StatusCode != 400 || !gjson.Get(body, "error").Exists() {
			t.Errorf("Host %q: HTTP %d %s", hosts, response.StatusCode, body)
		}
	}
	r.works()
}

// A preflight is one by its method and its header, for a path that is there.
func TestPreflightAsksForSomething(t *testing.T) {
	const ours = "https://app.example"
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.AllowedOrigins = []string{ours} })
	for _, test := range []struct {
		line, headers string
		want          int
	}{
		{"OPTIONS /rpc HTTP/1.1", "Access-Control-Request-Method: POST\r\n", 204},
		{"OPTIONS /rpc HTTP/1.1", "", 405},
		{"OPTIONS /nowhere HTTP/1.1", "Access-Control-Request-Method: POST\r\n", 404},
		{"GET /rpc HTTP/1.1", "Access-Control-Request-Method: POST\r\n", 405},
	} {
		response, body := r.raw(r.head(test.line) + "Origin: " + ours + "\r\n" + test.headers + "\r\n")
		if response.StatusCode != test.want || (test.want == 204) != (response.Header.Get("Access-Control-Allow-Methods") != "") {
			t.Errorf("%s %q: HTTP %d %s, want %d", test.line, test.headers, response.StatusCode, body, test.want)
		}
	}
}

// What is declared twice, or as something that is not read, is refused by its name.
func TestAttackDeclaredOtherwise(t *testing.T) {
	r := rigged(t, nil)
	for headers, say := range map[string]string{
		"Content-Type: application/json\r\nContent-Type: text/plain\r\n":       `"application/json and text/plain"`,
		"Content-Type: application/json\r\nContent-Type: application/json\r\n": `"application/json and application/json"`,
		"Content-Type: text/html\r\n":                                          `"text/html"`,
		"Content-Type: application/json; charset\r\n":                          `"application/json; charset"`,
		"Content-Type: application/json; charset=latin1\r\n":                   "latin1",
		"Content-Encoding: br\r\n":                                             `Content-Encoding "br" is not understood: gzip alone is`,
		"Content-Encoding: gzip, br\r\n":                                       `"gzip, br"`,
		"Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n":                 `"gzip, gzip"`,
		"Content-Encoding: " + strings.Repeat("x", 5000) + "\r\n":              "x…",
	} {
		response, body := r.raw(withLength(r.head("POST /rpc HTTP/1.1")+headers, list))
		if details := gjson.Get(body, "error.data.details").Str; response.StatusCode != 415 || !strings.Contains(details, say) || len(details) > 200 {
			t.Errorf("%.100s: HTTP %d %s", headers, response.StatusCode, body)
		}
	}
	for _, headers := range []string{"", "Content-Type:\r\n", "Content-Encoding: identity\r\n", "Content-Type: APPLICATION/json; charset=\"UTF-8\"\r\n"} {
		if response, body := r.raw(withLength(r.head("POST /rpc HTTP/1.1")+headers, list)); response.StatusCode != 200 {
			t.Errorf("%q: HTTP %d %s", headers, response.StatusCode, body)
		}
	}
}

// What a query has and we do not know is named, with what was probably meant, and so is what it has twice.
func TestUnknownQueryMembers(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	for target, say := range map[string]string{
		"/agent/a/events?type=error":        "Unknown parameter: type",
		"/agent/a/events?agents=a":          "Unknown parameter: agents",
		"/agent/a/events?after=0&x=1&After": "Unknown parameter: After",
		"/agent/a/events?after=0&after=1":   "Invalid parameter after: stands twice",
		"/events?agent=a":                   "Unknown parameter: agent",
		"/events?types=a&types=b":           "Invalid parameter types: stands twice",
		"/docs?method=send":                 "Unknown parameter: method",
		"/docs?%zz":                         "Invalid query",
	} {
		response, body := r.do("GET", target, nil)
		if response.StatusCode != 400 || !strings.Contains(gjson.Get(body, "error.message").Str, say) || gjson.Get(body, "error.data.type").Str != "INVALID_PARAMS" {
			t.Errorf("%s: HTTP %d %s", target, response.StatusCode, body)
		}
	}
	if _, body := r.do("GET", "/events?agent=a", nil); !strings.Contains(body, "Did you mean agents?") {
		t.Errorf("a slip of a member: %s", body)
	}
	_, body := r.post("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"preset":"trustd"}}`)
	if gjson.Get(body, "error.data.details").Str != "did you mean trusted?" {
		t.Errorf("a slip of a preset: %s", body)
	}
	if response, _ := r.do("GET", "/docs?", nil); response.StatusCode != 200 {
		t.Errorf("an empty query: HTTP %d", response.StatusCode)
	}
}

// Who gives a media type the weight 0 does not want it.
func TestStreamRefusedByWeight(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	for accept, want := range map[string]string{
		"text/event-stream":                          "text/event-stream",
		"application/json, TEXT/event-stream; q=0.1": "text/event-stream",
		"text/event-stream;q=0":                      "application/json",
		"text/event-stream; x=y; Q=0.000, */*":       "application/json",
		"text/event-stream;q=none":                   "application/json",
		"*/*":                                        "application/json",
	} {
		response, body := r.post("/agent/a", `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"x"}}`, "Accept", accept)
		if got := response.Header.Get("Content-Type"); response.StatusCode != 200 || got != want {
			t.Errorf("Accept %q: HTTP %d, %s, %s", accept, response.StatusCode, got, body)
		}
	}
}
