package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// What was undone stays undone after kills and compactions, and each turn can be undone down to
// the summary.
func TestUndoOutlivesKillsAndCompactions(t *testing.T) {
	home := t.TempDir()
	args := []string{"--session-dir", filepath.Join(home, "sessions")}
	p := startChild(t, home, append(args, "--session", "s")...)
	n := 0
	ask := func(format string, a ...any) string {
		n++
		p.send(fmt.Sprintf(`{"id":"%d",`+format+`}`, append([]any{n}, a...)...))
		return p.want("id", fmt.Sprint(n)).Raw
	}
	say := func(text string) { ask(`"type":"prompt","message":"echo %s"`, text) }
	spoken := func() (all string) {
		for _, m := range strings.Split(ask(`"type":"get_messages"`), `"content":"echo `)[1:] {
			text, _, _ := strings.Cut(m, `"`)
			all += text[:1]
		}
		return all
	}
	again := func() {
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.wait()
		p = startChild(t, home, append(args, "--continue", "s")...)
	}
	long := strings.Repeat(" long words", 500)
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { say("a" + long); say("b"); say("c") }, "abc"},
		{func() { ask(`"type":"undo"`); again() }, "ab"},
		{func() { say("d"); ask(`"type":"undo"`); say("e" + long); again() }, "abe"},
		{func() { ask(`"type":"compact"`); again() }, "be"},
		{func() {
			const want = `"content":"echo a`
			if got := ask(`"type":"get_messages","include_compacted":true,"limit":1`); !strings.Contains(got, want) || !strings.Contains(got, `"total":6,`) {
				t.Errorf("all that was said: %.300s, want %s", got, want)
			}
			if got := ask(`"type":"get_messages","include_compacted":true,"offset":4`); strings.Contains(got, "Summary") || !strings.Contains(got, `"content":"echo e`) || !strings.Contains(got, `"offset":4`) {
				t.Errorf("the last turn of it: %.300s", got)
			}
		}, "be"},
		{func() { ask(`"type":"undo"`); say("f"); say("g"); ask(`"type":"compact","force":true`); again() }, "g"},
		{func() { ask(`"type":"undo"`); again() }, ""},
	} {
		if step.do(); spoken() != step.want {
			t.Fatalf("there are %q, want %q", spoken(), step.want)
		}
	}
	if got := ask(`"type":"undo"`); !strings.Contains(got, `"undone":false`) || !strings.Contains(got, `"message_count":1`) {
		t.Errorf("of a summary alone: %s", got)
	}
	say("h")
	if got := spoken(); got != "h" {
		t.Errorf("there are %q", got)
	}
	p.stdin.Close()
	p.wait()
}
