package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/auth"
	"nexus.internal/protocol/jsonrpc"
)

// by asks a server something with a key.
func (s *live) by(key, path, method, params string) (status int, answer string) {
	s.Helper()
	status, answer, err := request(http.MethodPost, s.url+path, http.Header{"Authorization": {"Bearer " + key}},
		fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	if err != nil {
		s.Errorf("%s: %v", method, err)
	}
	return status, answer
}

// untilStatus waits until a key has that status at a machine.
func (s *live) untilStatus(key string, want int) {
	s.Helper()
	eventually(s.T, fmt.Sprintf("a key gets %d", want), func() (none struct{}, err error) {
		if status, answer := s.by(key, "/", "list_agents", `{}`); status != want {
			err = fmt.Errorf("%d %s", status, answer)
		}
		return none, err
	})
}

// fileKey is what the full key's file has.
func (s *live) fileKey() string {
	files, err := filepath.Glob(filepath.Join(s.home, "server*.key"))
	if err != nil || len(files) != 1 {
		s.Fatal(files, err)
	}
	key, err := os.ReadFile(files[0])
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimSpace(string(key))
}

// untilOneKey waits until the files of all servers have the same full key, which is another one than before.
func untilOneKey(t *testing.T, before string, all ...*live) (key string) {
	t.Helper()
	return eventually(t, "the machines have one full key", func() (string, error) {
		key := all[0].fileKey()
		for _, s := range all {
			if other := s.fileKey(); other != key || key == before {
				return "", errors.New("they have several, or the old one")
			}
		}
		return key, nil
	})
}

// A key of one machine is good at all, for what it is good for and until it is revoked, whichever of them is asked and has the agent. So is the full key, which lasts
// longer than the servers.
func TestClusterKeys(t *testing.T) {
	t.Parallel()
	shared, a, b, c := farm(t)
	full := untilOneKey(t, "", a, b, c)
	for _, s := range []*live{a, b, c} {
		s.untilStatus(full, http.StatusOK)
		s.untilStatus(s.key, http.StatusOK) // that of its start
	}
	b.createIn("worker", shared)
	answered(t, a, "My name is Alice", "Alice")
	made := gjson.Get(a.call("/", "create_key", `{"scope":"read","name":"dashboard"}`), "result")
	read := made.Get("key").Str
	agent := gjson.Get(c.call("/", "create_key", `{"scope":"agent","agent_id":"worker"}`), "result.key").Str
	for _, s := range []*live{a, b, c} {
		s.untilStatus(read, http.StatusOK)
		if _, answer := s.by(read, "/agent/worker", "send", `{"content":"no"}`); gjson.Get(answer, "error.data.type").Str != "NOT_PERMITTED" {
			t.Errorf("a key for reading sends: %s", answer)
		}
		eventually(t, "a key for one agent asks it", func() (none struct{}, err error) {
			if _, answer := s.by(agent, "/agent/worker", "send", `{"content":"What is my name?"}`); !strings.Contains(answer, "Your name is Alice.") {
				err = errors.New(answer)
			}
			return none, err
		})
		if _, answer := s.by(agent, "/agent/worker", "respond_permission", `{"permission_request_id":"p","decision":"allow"}`); gjson.Get(answer, "error.data.type").Str != "NOT_PERMITTED" {
			t.Errorf("a key for one agent approves its calls: %s", answer)
		}
		if _, answer := s.by(agent, "/", "list_keys", `{}`); gjson.Get(answer, "error.data.type").Str != "NOT_PERMITTED" {
			t.Errorf("a key for one agent lists keys: %s", answer)
		}
		if got := gjson.Get(s.call("/", "list_keys", `{}`), "result.keys.#").Int(); got != 2 {
			t.Errorf("a machine lists %d keys, want 2", got)
		}
	}
	replays(t, full, a, b)
	audits(t, agent, a, b)

	if answer := b.call("/", "revoke_key", fmt.Sprintf(`{"key_id":%q}`, made.Get("key_id").Str)); !gjson.Get(answer, "result.revoked").Bool() {
		t.Error(answer)
	}
	for _, s := range []*live{a, b, c} {
		s.untilStatus(read, http.StatusForbidden)
	}

	if answer := c.call("/", "rotate_key", `{}`); !gjson.Get(answer, "result.rotated").Bool() {
		t.Error(answer)
	}
	next := untilOneKey(t, full, a, b, c)
	for _, s := range []*live{a, b, c} {
		s.untilStatus(full, http.StatusForbidden)
		s.untilStatus(s.key, http.StatusForbidden)
		s.key = next
		s.untilStatus(agent, http.StatusForbidden) // which is for its path alone
	}
	b.end()
	b.again()
	b.untilNodes("a up, b up, c up")
	if key := untilOneKey(t, full, a, b, c); key != next {
		t.Error("a server that starts again has another full key")
	}
	for _, s := range []*live{c, b, a} {
		s.end()
	}
}

// A machine that starts while no majority is there does not know the keys of the cluster: a client with one of them gets NO_QUORUM, and sends it to nobody,
// however many addresses it has. Once the others are back, the keys are good.
func TestClusterKeysUnknown(t *testing.T) {
	t.Parallel()
	_, a, b, c := farm(t)
	full := untilOneKey(t, "", a, b, c)
	read := gjson.Get(a.call("/", "create_key", `{"scope":"read"}`), "result.key").Str
	for _, s := range []*live{a, b, c} {
		s.untilStatus(read, http.StatusOK)
	}
	for _, s := range []*live{a, b, c} {
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait() // that it was killed
	}
	a.again()
	for key, server := range map[string]string{full: strings.Join([]string{b.url, a.url, c.url}, ","), read: a.url} {
		cmd := exec.Command(filepath.Join(programs, "nexus"), "nodes", "--server", server, "--api-key", key, "--json")
		cmd.Env = []string{"HOME=" + a.home, "NEXUS_HOME=" + a.home}
		out, err := cmd.CombinedOutput()
		if err == nil || gjson.GetBytes(out, "error.data.type").Str != "NO_QUORUM" || !strings.Contains(string(out), "does not know the keys of its cluster") {
			t.Errorf("at %s: %v\n%s", server, err, out)
		}
		parsed, err := auth.Parse(key)
		if err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprint(time.Now().Unix())
		r := jsonrpc.Request{ID: jsonrpc.NumberID(1), Method: "list_kinds"}
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"list_kinds","auth":{"timestamp":%s,"signature":%q}}`, at, parsed.Sign(auth.RequestText(at, "/rpc", r)))
		if status, answer, err := request(http.MethodPost, a.url+"/rpc", http.Header{}, body); err != nil || status != http.StatusServiceUnavailable || gjson.Get(answer, "error.data.type").Str != "NO_QUORUM" {
			t.Errorf("a signature alone: %d %s, %v", status, answer, err)
		}
	}
	b.again()
	for _, key := range []string{full, read} {
		a.untilStatus(key, http.StatusOK)
	}
	a.end()
	b.end()
}

// replays has the full key sign a request, which is good once.
func replays(t *testing.T, full string, all ...*live) {
	t.Helper()
	key, err := auth.Parse(full)
	if err != nil {
		t.Fatal(err)
	}
	for i, first := range all {
		at := fmt.Sprint(time.Now().Unix())
		r := jsonrpc.Request{ID: jsonrpc.NumberID(int64(i + 1)), Method: "list_kinds"}
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"list_kinds","auth":{"timestamp":%s,"signature":%q}}`, i+1, at, key.Sign(auth.RequestText(at, "/rpc", r)))
		for n, s := range append([]*live{first}, all...) {
			status, answer, err := request(http.MethodPost, s.url+"/rpc", http.Header{}, body)
			if want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[n == 0]; err != nil || status != want || n > 0 && !strings.Contains(answer, "it was used before") {
				t.Errorf("a signed request, the time %d: %d %s, %v; want %d", n+1, status, answer, err, want)
			}
		}
	}
}

// audits has a key change an agent of another machine: both machines say that it has, with one request id.
func audits(t *testing.T, key string, asked, owner *live) {
	t.Helper()
	status, answer, err := request(http.MethodPost, asked.url+"/agent/worker", http.Header{"Authorization": {"Bearer " + key}, "X-Request-Id": {"audited"}},
		`{"jsonrpc":"2.0","id":1,"method":"set_permissions","params":{"preset":"sandboxed"}}`)
	if err != nil || status != http.StatusOK || gjson.Get(answer, "error").Exists() {
		t.Fatalf("%d %s, %v", status, answer, err)
	}
	parsed, err := auth.Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*live{asked, owner} {
		text, err := os.ReadFile(filepath.Join(s.home, "audit-limited.jsonl"))
		found := 0
		for line := range strings.Lines(string(text)) {
			if gjson.Get(line, "request_id").Str == "audited" && gjson.Get(line, "by.key").Str == parsed.ID() && gjson.Get(line, "agent").Str == "worker" {
				found++
			}
		}
		if err != nil || found != 2 {
			t.Errorf("of the lines for a call two are to say which key has asked, %d do: %v\n%s", found, err, text)
		}
	}
}

// What a key asks of one machine counts at the others: it gets no more than its rate, but for what it asks in the moment in which they do not know that.
func TestClusterRate(t *testing.T) {
	t.Parallel()
	dir := initCluster(t, clusterAddresses(t, "a", "b")...)
	a, b := newMachine(t, filepath.Join(dir, "a"), "--rate", "600"), newMachine(t, filepath.Join(dir, "b"), "--rate", "600")
	full := untilOneKey(t, "", a, b)
	for n := 0; ; n++ {
		if n > 5000 {
			t.Fatal("a key has no rate")
		}
		if status, _ := a.by(full, "/", "list_kinds", `{}`); status == http.StatusTooManyRequests {
			break
		}
	}
	asked := 0
	eventually(t, "b counts what was asked of a", func() (none struct{}, err error) {
		if asked++; asked > 400 { // that b alone would not mind
			t.Fatal("b does not count what was asked of a")
		}
		if status, _ := b.by(full, "/", "list_kinds", `{}`); status != http.StatusTooManyRequests {
			err = fmt.Errorf("%d", status)
		}
		return none, err
	})
	b.end()
	a.end()
}
