package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/logfile"
)

// What operators read of a server (its log, its metrics, its audit log) holds
// nothing of what clients, agents and models said, and no key: not the
// service's, which is in the server's environment and in all that the service says
// back, nor the façade's.
func TestObservationKeepsSecrets(t *testing.T) {
	t.Parallel()
	vendor := newVendor(t)
	s := startServer(t, vendor)
	const (
		prompt, answer = "canary-prompt-51ac", "Your key is " // what the vendor answers begins so
		first, system  = "canary-first-77d0", "canary-system-0b3e"
		reason, header = "canary-reason-9a1f", "canary-header-c2d4"
		path, cookie   = "canary-path-e8b7", "canary-cookie-d01d"
	)
	s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"loud","cwd":%q,"initial_message":%q,"wait_for_initial_response":true}`, s.cwd, first))
	s.call("/agent/loud", "set_system_prompt", fmt.Sprintf(`{"system_prompt":%q}`, system))
	for _, say := range []string{"echo ", "fail ", "refuse "} { // the service's errors have the key in them
		s.send("loud", say+prompt)
	}
	s.call("/agent/loud", "respond_permission", fmt.Sprintf(`{"request_id":"none","decision":"deny","reason":%q}`, reason))
	for _, to := range []string{"/rpc?key=" + path, "/" + path, "/metrics", "/agent/loud/events?after=" + path} {
		headers := http.Header{"Authorization": {"Bearer nxk_" + header}, "Cookie": {cookie}, "X-Key": {header}}
		if _, _, err := request(http.MethodGet, s.url+to, headers, ""); err != nil {
			t.Error(err)
		}
		headers.Set("Authorization", "Bearer "+s.key)
		if to == "/metrics" {
			continue
		}
		if _, _, err := request(http.MethodPost, s.url+to, headers, prompt); err != nil {
			t.Error(err)
		}
	}
	made := s.call("/", "create_key", `{"scope":"read","name":"ci"}`)
	reader := gjson.Get(made, "result.key").Str
	_, metrics, err := request(http.MethodGet, s.url+"/metrics", http.Header{"Authorization": {"Bearer " + reader}}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.end()
	audit := auditLog(t, s.home)
	for where, c := range map[string]struct{ text, sign string }{
		"the log":       {s.log.String(), `"message":"http request"`},
		"the metrics":   {metrics, "\n" + `nexus_model_requests_total{provider="vendor",result="failed"} 2` + "\n"},
		"the audit log": {audit, `"method":"set_system_prompt"`},
	} {
		if !strings.Contains(c.text, c.sign) {
			t.Errorf("%s has no %s, so nothing was tried:\n%s", where, c.sign, c.text)
		}
		for _, secret := range []string{
			prompt, answer, first, system, reason, header, path, cookie, canary, canary[8:20], s.key, reader, "nxk_",
		} {
			if strings.Contains(c.text, secret) {
				t.Errorf("%s shows %q:\n%s", where, secret, c.text)
			}
		}
	}
	for _, want := range []string{
		"\nnexus_agents{state=\"ready\"} 2\n", "\nnexus_launch_seconds_count 2\n", "\n" + `nexus_model_tokens_total{kind="output",provider="vendor"} 60` + "\n",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
	_, memory, _ := strings.Cut(metrics, "\n"+`nexus_agent_memory_bytes{agent="loud"} `)
	if v, _, _ := strings.Cut(memory, "\n"); !strings.Contains(v, "e+0") {
		t.Errorf("the agent's process has %q bytes", v)
	}
}

// A key that a client sends in the place of something else stands in no log, audit line
// or error: neither a good one nor one of another server.
func TestAttackKeysInTheWrongPlaces(t *testing.T) {
	t.Parallel()
	s := startServer(t, newVendor(t))
	foreign := auth.Generate().Reveal()
	var errs strings.Builder
	for _, key := range []string{s.key, foreign} {
		headers := http.Header{"Authorization": {"Bearer " + s.key}}
		for _, call := range []struct{ path, body string }{
			{"/rpc", `{"jsonrpc":"2.0","id":"KEY","method":"KEY","params":{}}`},
			{"/rpc", `{"jsonrpc":"2.0","id":1,"method":"list_agents","params":{"KEY":1}}`},
			{"/rpc", `{"jsonrpc":"2.0","id":1,"method":"list_agents","KEY":1,"KEY":2}`},
			{"/rpc", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"x","model":"KEY"}}`},
			{"/rpc", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"KEY KEY","preset":"KEY"}}`},
			{"/rpc", `{"jsonrpc":"2.0","id":1,"method":"create_key","params":{"scope":"KEY","name":"KEY"}}`},
			{"/rpc", `{"jsonrpc":"2.0","id":1,"method":"create_key","params":{"scope":"read","name":"KEY"}}`},
			{"/rpc", `{"jsonrpc":"2.0","id":1,"method":"revoke_key","params":{"key_id":"KEY"}}`},
			{"/rpc", `{"jsonrpc":"2.0","id":1,"method":"delete_session","params":{"session_name":"KEY"}}`},
			{"/agent/KEY", `{"jsonrpc":"2.0","id":1,"method":"get_model"}`},
		} {
			_, answer, err := request(http.MethodPost, s.url+strings.ReplaceAll(call.path, "KEY", key), headers, strings.ReplaceAll(call.body, "KEY", key))
			if err != nil {
				t.Fatal(err)
			}
			errs.WriteString(gjson.Get(answer, "error").Raw + "\n")
		}
		for _, method := range []string{key, http.MethodGet} {
			_, answer, err := request(method, s.url+"/events?"+key+"=1", headers, "")
			if err != nil {
				t.Fatal(err)
			}
			errs.WriteString(answer)
		}
	}
	s.end()
	audit := auditLog(t, s.home)
	for where, text := range map[string]string{"the log": s.log.String(), "the audit log": audit, "an error": errs.String()} {
		if !strings.Contains(text, "nxk_[redacted]") {
			t.Errorf("%s has none, so nothing was tried:\n%s", where, text)
		}
		for name, key := range map[string]string{"the key": s.key, "another key": foreign} {
			if strings.Contains(text, key[:30]) {
				t.Errorf("%s shows %s:\n%s", where, name, text)
			}
		}
	}
}

// What a model's service says in its errors is told to whoever asked and stands
// in no log, metric or audit line: it may be the prompt, or a part of a key. Also
// when the process that heard it is killed, and its last words are logged.
func TestServicesWordsAreInNoLog(t *testing.T) {
	t.Parallel() // most of it is waiting
	vendor := newVendor(t)
	s := startServer(t, vendor)
	const prompt = "canary-prompt-51ac"
	var told strings.Builder
	for _, say := range []string{"400", "500", "429", "stream", "malformed", "garbage"} {
		told.WriteString(s.send("spy", "parrot "+say+" "+prompt))
	}
	if n := strings.Count(told.String(), parroted); n < 4 {
		t.Errorf("the service's words are %d times in the answers, so nothing was tried:\n%s", n, &told)
	}
	if err := syscall.Kill(s.pid("spy"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_, metrics, err := request(http.MethodGet, s.url+"/metrics", http.Header{"Authorization": {"Bearer " + s.key}}, "")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent comes back", func() (string, error) {
		if answer := s.send("spy", "echo"); !strings.Contains(answer, `"completed"`) {
			return "", errors.New(answer)
		}
		return "", nil
	})
	s.end()
	audit := auditLog(t, s.home)
	log := s.log.String()
	for _, want := range []string{
		`"agent crashed"`, "turn failed", "400 Bad Request", "500 Internal Server Error; try 2 of 4", "the service reported an error",
		"the service sent a malformed event", "a service cannot be reached", "it does not answer as HTTP does",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	for where, text := range map[string]string{"the log": log, "the metrics": metrics, "the audit log": audit} {
		for _, secret := range []string{parroted, prompt, canary, canary[8:20]} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %q:\n%s", where, secret, text)
			}
		}
	}
}

// auditLog is all that the audit log of a home has.
func auditLog(t *testing.T, home string) string {
	t.Helper()
	var all []byte
	for _, path := range logfile.TierFiles(filepath.Join(home, "audit.jsonl")) {
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	return string(all)
}
