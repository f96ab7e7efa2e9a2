package bridge_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/replay"
	"nexus.internal/protocol/jsonrpc"
)

// sign is a request with its signature, made by hand as SPEC §6.5 says.
func sign(key auth.Key, at any, path, id, method, params string) string {
	stamp := fmt.Sprint(at)
	signature := key.Sign("nexus-request-v1\n" + stamp + "\n" + path + "\n" + id + "\n" + method + "\n" + params)
	body := `{"jsonrpc":"2.0","method":"` + method + `","auth":{"timestamp":` + stamp + `,"signature":"` + signature + `"}`
	if id != "" {
		body += `,"id":` + id
	}
	if params != "" {
		body += `,"params":` + params
	}
	return body + "}"
}

// without sends a body without the Authorization header.
func (r *rig) without(path, body string) (*http.Response, string) {
	r.t.Helper()
	return r.raw(withLength("POST "+path+" HTTP/1.1\r\nHost: "+r.addr+"\r\n", body))
}

func TestSignedRequests(t *testing.T) {
	r := rigged(t, nil)
	r.create("a")
	now := time.Now().Unix()
	for name, test := range map[string]struct{ path, body string }{
		"with an id":           {"/rpc", sign(r.key, now, "/rpc", "1", "list_agents", "")},
		"with params":          {"/rpc", sign(r.key, now, "/rpc", `"x"`, "list_sessions", "{ \"limit\":\n 1}")},
		"of an agent":          {"/agent/a", sign(r.key, fmt.Sprintf("%d.25", now), "/agent/a", "1", "get_model", "")},
		"with a query":         {"/rpc?x=1", sign(r.key, now, "/rpc", "7", "list_agents", "")},
		"a batch":              {"/rpc", "[" + sign(r.key, now, "/rpc", "2", "list_agents", "") + "," + sign(r.key, now, "/rpc", "3", "list_agents", "") + "]"},
		"early, within bounds": {"/rpc", sign(r.key, now-290, "/rpc", "1", "list_agents", "")},
		"late, within bounds":  {"/rpc", sign(r.key, now+290, "/rpc", "1", "list_agents", "")},
	} {
		response, body := r.without(test.path, test.body)
		if response.StatusCode != 200 || !strings.Contains(body, `"result"`) || strings.Contains(body, `"error"`) || response.Header.Get("X-Key-Scope") != "full" {
			t.Errorf("%s: HTTP %d %v %s", name, response.StatusCode, response.Header, body)
		}
	}
	bearer, _ := r.scoped(auth.ScopeRead, "")
	key, err := auth.Parse(strings.TrimPrefix(bearer, "Bearer "))
	if err != nil {
		t.Fatal(err)
	}
	if response, body := r.post("/rpc", sign(key, now, "/rpc", "1", "list_agents", ""), "Authorization", bearer); response.StatusCode != 200 {
		t.Errorf("with a scoped key's header: HTTP %d %s", response.StatusCode, body)
	}
	if response, body := r.without("/rpc", sign(key, now+1, "/rpc", "1", "list_agents", "")); response.StatusCode != 403 {
		t.Errorf("with a scoped key and no header: HTTP %d %s", response.StatusCode, body)
	}
}

func TestAttackReplayedSignature(t *testing.T) {
	r := rigged(t, nil)
	now := time.Now().Unix()
	request := sign(r.key, now, "/rpc", "1", "create_agent", `{"agent_id":"a"}`)
	if response, body := r.without("/rpc", request); response.StatusCode != 200 {
		t.Fatalf("HTTP %d %s", response.StatusCode, body)
	}
	if _, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: "a"}); err != nil {
		t.Fatal(err)
	}
	twice := sign(r.key, now, "/rpc", "2", "create_agent", `{"agent_id":"b"}`)
	for name, body := range map[string]string{
		"the same again": request, "within a batch": "[" + request + "]", "beside a new one": "[" + sign(r.key, now, "/rpc", "9", "list_agents", "") + "," + request + "]",
		"twice in a batch": "[" + twice + "," + twice + "]",
	} {
		for _, send := range []func(string, string) (*http.Response, string){
			r.without, func(path, body string) (*http.Response, string) { return r.post(path, body) },
		} {
			response, answer := send("/rpc", body)
			if response.StatusCode != 403 || gjson.Get(answer, "error.message").Str != "Invalid signature" || !strings.Contains(answer, "used before") {
				t.Errorf("%s: HTTP %d %s", name, response.StatusCode, answer)
			}
		}
	}
	if agents := r.sup.Agents(); len(agents) != 0 {
		t.Errorf("something was done again: %v", agents)
	}
}

// A signature is remembered as long as any of its body is good: of a body with several
// the latest counts. Those of full keys, which end with the server, are not on the disk.
func TestSignaturesAreRememberedLongEnough(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signatures")
	seen, err := replay.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seen.Close() })
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.Signatures = seen })
	bearer, _ := r.scoped(auth.ScopeRead, "")
	key, err := auth.Parse(strings.TrimPrefix(bearer, "Bearer "))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Unix()
	var items []string
	for i, at := range []int64{now - 200, now + 200, now - 100} {
		items = append(items, sign(key, at, "/rpc", fmt.Sprint(i), "list_agents", ""))
	}
	if response, body := r.post("/rpc", "["+strings.Join(items, ",")+"]", "Authorization", bearer); response.StatusCode != 200 {
		t.Fatalf("HTTP %d %s", response.StatusCode, body)
	}
	if response, body := r.without("/rpc", sign(r.key, now, "/rpc", "1", "list_agents", "")); response.StatusCode != 200 {
		t.Fatalf("HTTP %d %s", response.StatusCode, body)
	}
	kept, err := os.ReadFile(path)
	if want := fmt.Sprintf("%d ", (now+500)*1e6); err != nil || strings.Count(string(kept), want) != 3 || strings.Count(string(kept), "\n") != 3 {
		t.Errorf("%v, kept:\n%swant three lines with %s", err, kept, want)
	}
}

// A key for less fills its own share of the signatures that are remembered, where they are required: the full key, and others, sign as
// before, and what it has used is not accepted again.
func TestAttackSignaturesOfAKeyForLess(t *testing.T) {
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.RequireSignatures = true })
	parsed := func(bearer string) auth.Key {
		key, err := auth.Parse(strings.TrimPrefix(bearer, "Bearer "))
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	bearer, _ := r.scoped(auth.ScopeRead, "")
	key := parsed(bearer)
	late := time.Now().Unix() + 290
	batch := func(n int) string {
		items := make([]string, 100)
		for i := range items {
			items[i] = sign(key, late, "/rpc", strconv.Itoa(n*len(items)+i), "no_such_method", "")
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	used := 0
	for ; ; used++ {
		response, body := r.post("/rpc", batch(used), "Authorization", bearer)
		if response.StatusCode == http.StatusTooManyRequests && gjson.Get(body, "error.code").Int() == -32002 && response.Header.Get("Retry-After") != "" {
			break
		}
		if response.StatusCode != http.StatusOK || used > replay.MaxUsed/100 {
			t.Fatalf("batch %d: HTTP %d %.300s", used, response.StatusCode, body)
		}
	}
	if used != replay.MaxUsedOfKey/100 {
		t.Errorf("a key for less has used %d batches, want %d", used, replay.MaxUsedOfKey/100)
	}
	if response, body := r.post("/rpc", batch(0), "Authorization", bearer); response.StatusCode != http.StatusForbidden {
		t.Errorf("what it has used, again: HTTP %d %.300s", response.StatusCode, body)
	}
	now := time.Now().Unix()
	if response, body := r.without("/rpc", sign(r.key, now, "/rpc", "1", "create_agent", `{"agent_id":"a"}`)); response.StatusCode != http.StatusOK {
		t.Errorf("the full key: HTTP %d %s", response.StatusCode, body)
	}
	other, _ := r.scoped(auth.ScopeAgent, "a")
	if response, body := r.post("/agent/a", sign(parsed(other), now, "/agent/a", "1", "get_model", ""), "Authorization", other); response.StatusCode != http.StatusOK {
		t.Errorf("another key for less: HTTP %d %s", response.StatusCode, body)
	}
}

// What is refused because it came too early may come again as it is; and what was used
// before counts for no rate, so that nobody takes a key's share by it.
func TestSignatureOfWhatCameTooEarly(t *testing.T) {
	const rate = 60 // one in a second, after the first
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.RequestsPerMinute = rate })
	now := time.Now().Unix()
	used := sign(r.key, now, "/rpc", "1", "list_agents", "")
	if response, body := r.without("/rpc", used); response.StatusCode != 200 {
		t.Fatalf("HTTP %d %s", response.StatusCode, body)
	}
	for range rate {
		if response, body := r.without("/rpc", used); response.StatusCode != 403 {
			t.Fatalf("used again: HTTP %d %s", response.StatusCode, body)
		}
	}
	for i := 2; ; i++ {
		if i > 20 {
			t.Fatal("a signed request was never refused")
		}
		for status := 200; status != 429; {
			response, _ := r.post("/rpc", list)
			status = response.StatusCode
		}
		early := sign(r.key, now, "/rpc", strconv.Itoa(i), "list_agents", "")
		response, body := r.without("/rpc", early)
		if response.StatusCode == 200 { // a second has just gone by
			continue
		}
		if response.StatusCode != 429 {
			t.Fatalf("HTTP %d %s", response.StatusCode, body)
		}
		for end := time.Now().Add(patience); response.StatusCode == 429 && time.Now().Before(end); {
			response, body = r.without("/rpc", early)
		}
		if response.StatusCode != 200 {
			t.Errorf("when it came again: HTTP %d %s", response.StatusCode, body)
		}
		return
	}
}

func TestAttackForgedSignature(t *testing.T) {
	r := rigged(t, nil)
	r.scoped(auth.ScopeRead, "")
	r.create("a")
	now := time.Now().Unix()
	good := sign(r.key, now, "/rpc", "1", "list_agents", "{}")
	for _, test := range []struct {
		name, path, body string
		status           int
	}{
		{"another method", "/rpc", strings.Replace(good, "list_agents", "list_keys", 1), 403},
		{"other params", "/rpc", strings.Replace(good, "{}", "{ }", 1), 403},
		{"another id", "/rpc", strings.Replace(good, `"id":1`, `"id":2`, 1), 403},
		{"no id", "/rpc", strings.Replace(good, `"id":1,`, "", 1), 403},
		{"another path", "/", good, 403},
		{"another agent's path", "/agent/a", sign(r.key, now, "/agent/b", "1", "get_model", ""), 403},
		{"another time", "/rpc", strings.Replace(good, fmt.Sprint(now), fmt.Sprint(now+1), 1), 403},
		{"another key", "/rpc", sign(auth.Generate(), now, "/rpc", "1", "list_agents", ""), 403},
		{"the empty key, which the server has of scoped ones", "/rpc", sign(auth.Key{}, now, "/rpc", "1", "list_agents", ""), 403},
		{"too old", "/rpc", sign(r.key, now-302, "/rpc", "1", "list_agents", ""), 403},
		{"of the future", "/rpc", sign(r.key, now+310, "/rpc", "1", "list_agents", ""), 403},
		{"no number", "/rpc", sign(r.key, `"now"`, "/rpc", "1", "list_agents", ""), 403},
		{"too large a number", "/rpc", sign(r.key, "1e300", "/rpc", "1", "list_agents", ""), 403},
		{"no signature", "/rpc", `{"jsonrpc":"2.0","id":1,"method":"list_agents","auth":{"timestamp":1}}`, 403},
		{"more than a signature", "/rpc", strings.Replace(good, `"auth":{`, `"auth":{"by":"me",`, 1), 403},
		{"no object", "/rpc", `{"jsonrpc":"2.0","id":1,"method":"list_agents","auth":"x"}`, 403},
		{"twice", "/rpc", strings.Replace(good, `"auth"`, `"auth":{},"auth"`, 1), 401},
		{"one of a batch", "/rpc", "[" + sign(r.key, now, "/rpc", "5", "list_agents", "") + "," + list + "]", 401},
		{"one of a batch that is no request", "/rpc", "[" + sign(r.key, now, "/rpc", "6", "list_agents", "") + ",1]", 401},
		{"none", "/rpc", list, 401},
		{"no JSON", "/rpc", "{", 401},
	} {
		t.Run(test.name, func(t *testing.T) {
			response, body := r.without(test.path, test.body)
			if response.StatusCode != test.status || !gjson.Get(body, "error").Exists() {
				t.Errorf("HTTP %d %s, want %d", response.StatusCode, body, test.status)
			}
			wantWhole(t, body, jsonrpc.CodeNotAuthenticated)
			if test.status == 403 { // a good header does not make up for it
				if response, body = r.post(test.path, test.body); response.StatusCode != 403 {
					t.Errorf("with the header: HTTP %d %s", response.StatusCode, body)
				}
			}
		})
	}
	if response, body := r.without("/rpc", good); response.StatusCode != 200 {
		t.Errorf("the good one, which none of these used up: HTTP %d %s", response.StatusCode, body)
	}
}

// Where signatures are required, the key alone is not enough to change or read
// anything.
func TestAttackUnsignedWhereSignaturesAreRequired(t *testing.T) {
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.RequireSignatures = true })
	now := time.Now().Unix()
	for _, body := range []string{list, "[" + list + "]", "[" + sign(r.key, now, "/rpc", "1", "list_agents", "") + "," + list + "]"} {
		response, answer := r.post("/rpc", body)
		if response.StatusCode != 401 || gjson.Get(answer, "error.message").Str != "Signature required" {
			t.Errorf("%s: HTTP %d %s", body, response.StatusCode, answer)
		}
	}
	if response, body := r.post("/rpc", sign(r.key, now, "/rpc", "1", "list_agents", "")); response.StatusCode != 200 {
		t.Errorf("signed: HTTP %d %s", response.StatusCode, body)
	}
	if _, body := r.do(http.MethodGet, "/healthz", nil); !gjson.Get(body, "signatures_required").Bool() {
		t.Errorf("health does not say it: %s", body)
	}
	// The client of ours signs where that is wanted, and only there.
	r.create("a")
	for range 3 {
		if got, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "hello\nthere"}); err != nil || *got.Content != "hello\nthere" {
			t.Errorf("the client: %+v, %v", got, err)
		}
	}
}
