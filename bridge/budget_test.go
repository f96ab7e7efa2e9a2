package bridge_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"nexus.internal/bridge/auth"
	facade "nexus.internal/bridge/rpc"
)

// Connections that do not read their answers hold no more than their key may hold: sixty of them
// once took all memory of the machine. Other keys are answered meanwhile, and so is this
// one when the answers are gone.
func TestAttackUnreadBatches(t *testing.T) {
	r := rigged(t, nil)
	bearer, _ := r.scoped(auth.ScopeRead, "")
	_, document := r.post("/rpc", callBody("rpc.discover"))
	perBatch := min(100, facade.MaxBatchAnswer/len(document))
	batch := "[" + strings.Repeat(callBody("rpc.discover")+",", perBatch-1) + callBody("rpc.discover") + "]"
	text := withLength("POST /rpc HTTP/1.1\r\nConnection: close\r\nHost: "+r.addr+"\r\nAuthorization: "+bearer+"\r\n", batch)
	// full reports whether a whole batch does not fit beside what the key holds. What the
	// kernel takes of an answer is not held, so a small one may still fit.
	full := func(bearer string) bool {
		response, body := r.post("/rpc", batch, "Authorization", bearer)
		if response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q, want 1", response.Header.Get("Retry-After"))
		}
		return response.StatusCode == http.StatusTooManyRequests || strings.Contains(body, `"type":"RATE_LIMITED"`)
	}
	// Of those that come at once some are refused, and of each the kernel takes a part.
	var unread []net.Conn
	for !full(bearer) {
		if len(unread) > 4*facade.DefaultKeyBudget/facade.MaxBatchAnswer {
			t.Fatalf("a key with %d unread batches has another one", len(unread))
		}
		conn := r.dial()
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		unread = append(unread, conn)
	}
	other, _ := r.scoped(auth.ScopeRead, "")
	for name, bearer := range map[string]string{"the full key": "Bearer " + r.key.Reveal(), "another key": other} {
		if full(bearer) {
			t.Errorf("%s has no whole batch meanwhile", name)
		}
	}
	for _, conn := range unread {
		conn.Close()
	}
	for began, tries := time.Now(), 0; full(bearer); tries++ { // a try may take long by itself
		if tries > 20 && time.Since(began) > patience {
			t.Fatal("the key is refused although its connections are closed")
		}
	}
}

// A key's bodies under way count too: those that do not fit are refused before they come.
func TestAttackUnfinishedBodies(t *testing.T) {
	r := rigged(t, nil)
	bearer, _ := r.scoped(auth.ScopeRead, "")
	const size = 1 << 20 // bytes: MaxBody
	head := fmt.Sprintf("POST /rpc HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", r.addr, bearer, size)
	statuses := map[int]int{}
	for range facade.DefaultKeyBudget/size + 5 {
		conn := r.dial()
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		var line [len("HTTP/1.1 100")]byte
		if _, err := io.ReadFull(conn, line[:]); err != nil {
			t.Fatal(err)
		}
		var status int
		_, _ = fmt.Sscanf(string(line[:]), "HTTP/1.1 %d", &status)
		statuses[status]++
	}
	if got, want := fmt.Sprint(statuses), "map[100:64 429:5]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
