package bridge_test

import (
	"bufio"
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/auth"
)

// Keys that are not full cannot take all streams, neither one of them nor all together.
func TestAttackStreamsOfScopedKeys(t *testing.T) {
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.MaxUnauthenticated = 1000 })
	r.create("a")
	open := func(bearer string) (status int, kind string) {
		conn := r.dial()
		if _, err := conn.Write([]byte("GET /agent/a/events HTTP/1.1\r\nHost: " + r.addr + "\r\nAuthorization: " + bearer + "\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode == http.StatusOK {
			return response.StatusCode, ""
		}
		body := make([]byte, response.ContentLength)
		_, _ = response.Body.Read(body)
		return response.StatusCode, gjson.GetBytes(body, "error.data.type").Str
	}
	for _, most := range []int{64, 64, 64, 0} {
		bearer, _ := r.scoped(auth.ScopeAgent, "a")
		for i := range most {
			if status, kind := open(bearer); status != http.StatusOK {
				t.Fatalf("stream %d: HTTP %d %s", i, status, kind)
			}
		}
		if status, kind := open(bearer); status != http.StatusServiceUnavailable || kind != "TOO_MANY_STREAMS" {
			t.Errorf("one more than %d of a key: HTTP %d %s", most, status, kind)
		}
	}
	if status, kind := open("Bearer " + r.key.Reveal()); status != http.StatusOK {
		t.Errorf("the full key: HTTP %d %s", status, kind)
	}
}
