package main_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// A session that another process has open, or that cannot be read, has the same name
// whoever finds out: the server, or the child that was to go on with it.
func TestSessionsThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	for _, id := range []string{"held", "torn"} {
		s.call("/", "create_agent", `{"agent_id":"`+id+`"}`)
		s.send(id, "My name is Alice")
		s.call("/", "destroy_agent", `{"agent_id":"`+id+`"}`)
	}
	path := func(id string) string { return filepath.Join(s.home, "sessions", id+".jsonl") }
	held, err := os.Open(path("held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(path("torn"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("torn"), append(sound, "nonsense\n{}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]struct{ kind, message string }{
		"held": {"SESSION_IN_USE", "Resource unavailable"},
		"torn": {"SESSION_DAMAGED", "Session damaged: torn"},
	} {
		for _, ask := range []struct{ path, method, params string }{
			{"/", "load_session", `{"session_name":"` + id + `"}`},
			{"/", "create_agent", `{"agent_id":"` + id + `"}`},
			{"/agent/" + id, "get_tokens", `{}`},
			{"/agent/" + id, "send", `{"content":"What is my name?"}`},
			{"/agent/" + id, "set_cwd", `{"cwd":"/"}`},
			{"/", "save_session", `{"agent_id":"` + id + `","session_name":"` + id + `2"}`},
		} {
			answer := s.call(ask.path, ask.method, ask.params)
			if ask.method == "save_session" && id == "held" {
				continue // a copy needs no lock
			}
			data := gjson.Get(answer, "error.data")
			if data.Get("type").Str != want.kind || gjson.Get(answer, "error.message").Str != want.message || data.Get("details").Str == "" {
				t.Errorf("%s of %s: %s", ask.method, id, answer)
			}
		}
	}
	if err := os.WriteFile(path("torn"), sound, 0o600); err != nil {
		t.Fatal(err)
	}
	held.Close()
	for _, id := range []string{"held", "torn"} {
		if answer := s.send(id, "What is my name?"); gjson.Get(answer, "result.stop_reason").Str != "completed" {
			t.Errorf("afterwards: %s", answer)
		}
	}
	s.end()
}
