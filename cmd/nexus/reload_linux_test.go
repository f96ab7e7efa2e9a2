package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"
)

// echoService is a model's service that says its own name and the model's.
func echoService(t *testing.T, name string) string {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s %s\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", name, gjson.GetBytes(body, "model").Str)
	}))
	t.Cleanup(service.Close)
	return service.URL
}

// SIGHUP replaces the configuration for the server, the agents that run and those that
// start later, all of it; one that has an error changes nothing for any of them, and
// GET /readyz tells of it.
func TestReload(t *testing.T) {
	t.Parallel()
	hears := newSystemd(t)
	text := func(service, models, preset, more string) string {
		return fmt.Sprintf(`{"$schema":"x","providers":{"p":{"type":"openai","base_url":%q,"auth_method":"none","models":[%s]}},"default_model":"p/one",
			"presets":{%q:{"preset":"sandboxed"}}%s}`, echoService(t, service)+"/v1", models, preset, more)
	}
	var home string
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newLive(t, func(cmd *exec.Cmd) {
		for _, v := range cmd.Env {
			if path, ok := strings.CutPrefix(v, "NEXUS_HOME="); ok {
				home = path
			}
		}
		write(text("A", `{"id":"one"}`, "first", ""))
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+hears.path)
	})
	hears.until("READY=1")
	reload := func(want string) {
		t.Helper()
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if told := hears.until("RELOADING=1"); len(told) != 2 || !strings.HasPrefix(told[1], "MONOTONIC_USEC=") || len(told[1]) < 20 {
			t.Errorf("it reloads and tells %q", told)
		}
		if told := hears.until("READY=1"); len(told) != 2 || !strings.HasPrefix(told[1], want) {
			t.Errorf("it has reloaded and tells %q, want %s", told, want)
		}
	}
	create := func(agent, model, preset string) string {
		t.Helper()
		return s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"cwd":%q,"model":%q,"preset":%q}`, agent, s.cwd, model, preset))
	}
	want := func(what, got, part string) {
		t.Helper()
		if !strings.Contains(got, part) {
			t.Errorf("%s: got %s, want %s", what, got, part)
		}
	}
	warnings := func() string {
		t.Helper()
		status, body, err := request(http.MethodGet, s.url+"/readyz", http.Header{"Authorization": {"Bearer " + s.key}}, "")
		if err != nil || status != http.StatusOK {
			t.Errorf("readyz: %v %s", err, body)
		}
		return gjson.Get(body, "warnings").Raw
	}
	create("old", "p/one", "first")
	want("before", s.send("old", "x"), "A one")

	write(text("B", `{"id":"one"},{"id":"two"}`, "second", `,"server":{"allowed_origins":["http://app.example"]},"limits":{"concurrent":3}`))
	reload("STATUS=reloaded")
	want("the agent that runs", s.send("old", "x"), "B one")
	want("its models", s.call("/agent/old", "set_model", `{"model":"two"}`), `"two"`)
	want("and its new model", s.send("old", "x"), "B two")
	want("its presets", s.call("/agent/old", "set_permissions", `{"preset":"second"}`), `"result"`)
	want("a preset that is gone", create("none", "p/one", "first"), "want one of")
	create("new", "p/two", "second")
	want("a new agent", s.send("new", "x"), "B two")
	status, _, err := request(http.MethodGet, s.url+"/healthz", http.Header{"Origin": {"http://app.example"}}, "")
	if err != nil || status != http.StatusOK {
		t.Errorf("a new origin: %v", err)
	}
	want("no warnings", warnings(), "[]")

	for _, bad := range []string{
		text("C", `{"id":"three"}`, "third", `,"x":1`), text("C", `{"id":"three"}`, "third", ""), // p/one is gone
		text("C", `{"id":"one"}`, "third", `,"roles":{"planner":{"agent_id":"/"}}`), "{",
	} {
		write(bad)
		reload("STATUS=not reloaded: ")
		want("the agent that runs, after an error", s.send("old", "x"), "B two")
		want("its presets, after an error", s.call("/agent/old", "set_permissions", `{"preset":"second"}`), `"result"`)
		want("an error", warnings(), "the configuration from before holds: ")
	}
	s.call("/agent/new", "shutdown", `{}`)
	want("an agent that starts again, after an error", s.send("new", "x"), "B two")
	create("newer", "p/two", "second")
	want("a new agent, after an error", s.send("newer", "x"), "B two")

	plan := func() string { return s.call("/", "create_plan", `{"user_request":"x"}`) }
	want("a role as it is by default", plan(), "the agent's answer is not of the declared shape")
	write(text("D", `{"id":"one"}`, "third", `,"roles":{"planner":{"model":"none"}}`))
	reload("STATUS=not reloaded: ")
	write(text("D", `{"id":"one"}`, "third", `,"roles":{"planner":{"system_prompt":"Think.","approvals":"ask"}}`))
	reload("STATUS=reloaded")
	want("a role as it is configured", plan(), "the agent's answer is not of the declared shape")
	want("a model that is gone", s.call("/agent/old", "set_model", `{"model":"two"}`), "unknown model")
	want("one that is there", s.call("/agent/old", "set_model", `{"model":"one"}`), `"result"`)
	want("the agent that runs, at last", s.send("old", "x"), "D one")
	want("no warnings any more", warnings(), "[]")

	// What holds only from the next start is said, until it is as at this one again.
	write(text("D", `{"id":"one"}`, "third", `,"logs":{"sessions":true}`))
	reload("STATUS=reloaded")
	want("logs that the server does not write", warnings(), "logs were changed in config.json, and hold from the next start")
	write(text("D", `{"id":"one"}`, "third", ``))
	reload("STATUS=reloaded")
	want("logs as before", warnings(), "[]")
	s.end()
	if log := s.log.String(); strings.Count(log, "the configuration was not reloaded") != 5 || strings.Count(log, "configuration reloaded") != 4 {
		t.Errorf("log:\n%s", log)
	}
}

// A SIGHUP that comes since the server's terminal was closed ends the server, as no one
// is left to end it; one that somebody sends while the terminal is there does not.
func TestClosedTerminalEndsServer(t *testing.T) {
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer keyboard.Close()
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	hears := newSystemd(t)
	s := newLive(t, func(cmd *exec.Cmd) {
		cmd.Stdin = screen
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+hears.path)
	})
	hears.until("READY=1")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	hears.until("STATUS=reloaded")
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	if err := keyboard.Close(); err != nil {
		t.Fatal(err)
	}
	s.wait()
	if !strings.Contains(s.log.String(), "server stopped") {
		t.Errorf("log:\n%s", s.log)
	}
}
