package acp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
)

// A question is about the files of its input as well as about those that it says it is about: it was decided by these
// alone. One that names more than a question may is a tool of somebody else's.
func TestPathsOfAQuestion(t *testing.T) {
	location := func(path string) string { return `{"path":"` + path + `"}` }
	here := `"locations":[` + location("/w/a") + `],`
	many := strings.TrimSuffix(strings.Repeat(location("a")+",", 100), ",")
	for i := range 100 {
		many = strings.Replace(many, location("a"), location(fmt.Sprint("/w/", i)), 1)
	}
	for _, tt := range []struct {
		call   string
		action protocol.Action
		paths  []string
	}{
		{`"kind":"read","locations":[` + location("/w/a") + `],"rawInput":{"file_path":"/etc/shadow"}`, protocol.ActionRead, []string{"/w/a", "/etc/shadow"}},
		{`"kind":"edit","content":[{"type":"diff","path":"/etc/passwd"}],"rawInput":{"path":"/w/a"}`, protocol.ActionWrite, []string{"/etc/passwd", "/w/a"}},
		{`"kind":"read","locations":[` + many + `,` + location("/etc/shadow") + `]`, protocol.ActionExternal, nil},
		{`"kind":"read","rawInput":{"text":"a"}`, protocol.ActionExternal, nil},
		{`"kind":"move",` + here + `"rawInput":{"from":"/w/a","to":"/etc/shadow"}`, protocol.ActionWrite, []string{"/w/a", "/etc/shadow"}},
		{`"kind":"delete",` + here + `"rawInput":{"target":"/etc/shadow"}`, protocol.ActionWrite, []string{"/w/a", "/etc/shadow"}},
		{`"kind":"edit",` + here + `"rawInput":{"changes":{"/etc/cron.d/x":{"type":"add"}}}`, protocol.ActionWrite, []string{"/w/a", "/etc/cron.d/x"}},
		{`"kind":"edit",` + here + `"rawInput":{"patch":"*** Begin Patch\n*** Add File: /etc/cron.d/x\n+x\n*** End Patch"}`, protocol.ActionWrite, []string{"/w/a", "/etc/cron.d/x"}},
		{`"kind":"edit",` + here + `"rawInput":{"command":"str_replace","path":"/w/a","old_str":"a/b","new_str":"c"}`, protocol.ActionWrite, []string{"/w/a"}},
		{`"kind":"edit",` + here + `"rawInput":{"command":"view","path":"/w/a","cmd":"rm -rf /home"}`, protocol.ActionExternal, nil},
		{`"kind":"edit",` + here + `"rawInput":{"command":"view","path":"/w/a","x":{"command":"rm -rf /home"}}`, protocol.ActionExternal, nil},
		{`"kind":"read",` + here + `"rawInput":{"command":"create","path":"/w/a","commands":["rm"]}`, protocol.ActionExternal, nil},
		{`"kind":"edit",` + here + `"rawInput":{"command":"create","path":"/w/a","Command":"rm"}`, protocol.ActionExternal, nil},
		{`"kind":"edit",` + here + `"rawInput":{"command":"create","path":"/w/a","command":"rm"}`, protocol.ActionExternal, nil},
		{`"kind":"edit",` + here + `"rawInput":{"path":"/w/a","script":"rm"}`, protocol.ActionExternal, nil},
		{`"kind":"edit",` + here + `"rawInput":{"path":"/w/a","url":"http://x/"}`, protocol.ActionExternal, nil},
		{`"kind":"read",` + here + `"rawInput":{"path":"/w/a","include":["/etc/**"]}`, protocol.ActionExternal, nil},
		{`"kind":"search",` + here + `"rawInput":{"glob":"/etc/*"}`, protocol.ActionExternal, nil},
		{`"kind":"search",` + here + `"rawInput":{"query":"/etc"}`, protocol.ActionRead, []string{"/w/a", "/etc"}},
		{`"kind":"read",` + here + `"rawInput":{"files":[{"name":"/etc/shadow"}]}`, protocol.ActionRead, []string{"/w/a", "/etc/shadow"}},
		{`"kind":"read",` + here + `"rawInput":{"entries":["/etc/shadow"]}`, protocol.ActionRead, []string{"/w/a", "/etc/shadow"}},
		{`"kind":"read",` + here + `"rawInput":"/etc/shadow"`, protocol.ActionRead, []string{"/w/a", "/etc/shadow"}},
		{`"kind":"read",` + here + `"rawInput":["/etc/shadow"]`, protocol.ActionRead, []string{"/w/a", "/etc/shadow"}},
		{`"kind":"read",` + here + `"rawInput":{"command":"cat /etc/shadow"}`, protocol.ActionExecute, []string{"/w/a"}},
		{`"kind":"read",` + here + `"rawInput":{"cmd":"cat /etc/shadow"}`, protocol.ActionExternal, nil},
		{`"kind":"read",` + here + `"rawInput":{"url":"http://x/"}`, protocol.ActionExternal, nil},
		{`"kind":"read","rawInput":{"url":"http://x/"}`, protocol.ActionFetch, nil},
		{`"kind":"fetch","rawInput":{"url":"http://x/","to":"/etc/cron.d/x"}`, protocol.ActionExternal, []string{"/etc/cron.d/x"}},
		{`"kind":"fetch","rawInput":{"url":"http://x/","path":"f"}`, protocol.ActionExternal, []string{"f"}},
		{`"kind":"fetch","rawInput":{"url":"http://x/"}`, protocol.ActionFetch, nil},
		{`"kind":"fetch","rawInput":{"url":"http://x/","command":"sh"}`, protocol.ActionExternal, nil},
		{`"kind":"read",` + here + `"rawInput":{"path":"/w/a"}`, protocol.ActionRead, []string{"/w/a"}},
	} {
		turn := &turn{calls: map[string]*call{}}
		told := gjson.Parse(`{"toolCallId":"1",` + tt.call + `}`)
		turn.merge(told)
		if q := turn.question(told, nil); q.Action != tt.action || !cmp.Equal(q.Paths, tt.paths) {
			t.Errorf("%.90s: got %s of %q, want %s of %q", tt.call, q.Action, q.Paths, tt.action, tt.paths)
		}
	}
}

// Wherever the command of a question is, its input is shown whole.
func TestWhatRunsOfAQuestion(t *testing.T) {
	for call, want := range map[string]bool{
		`"kind":"execute","rawInput":{"cmd":"sh"}`: true, `"kind":"execute","rawInput":{"script":"x"}`: true, `"kind":"execute","rawInput":{"code":"x"}`: true,
		`"kind":"edit","rawInput":{"path":"f","x":{"command":"sh"}}`: true, `"kind":"other","rawInput":{"cmd":["sh"]}`: true, `"kind":"other","rawInput":"run it"`: true,
		`"kind":"edit","rawInput":{"path":"f","command":"view"}`: false, `"kind":"other","rawInput":{"x":"y"}`: false,
	} {
		told := gjson.Parse(`{"toolCallId":"1",` + call + `}`)
		if q := (&turn{}).question(told, nil); q.Runs != want {
			t.Errorf("%s: got %v", call, q.Runs)
		}
	}
}

// An input that is no object counts beside a later one that is.
func TestBareInputOfAQuestion(t *testing.T) {
	turn := &turn{calls: map[string]*call{}}
	turn.merge(gjson.Parse(`{"toolCallId":"1","kind":"read","rawInput":"/etc/shadow"}`))
	told := gjson.Parse(`{"toolCallId":"1","rawInput":{"path":"/w/a"}}`)
	turn.merge(told)
	if q := turn.question(told, nil); !cmp.Equal(q.Paths, []string{"/etc/shadow", "/w/a"}) && !cmp.Equal(q.Paths, []string{"/w/a", "/etc/shadow"}) {
		t.Errorf("got %s of %q", q.Action, q.Paths)
	}
}

// A question has as many options as a person reads, however many the program names, and those that the program
// remembers come after those for this once.
func TestOptions(t *testing.T) {
	list := []string{
		`{"optionId":"never","name":"Never","kind":"reject_always"}`, `{"optionId":"no","name":"No","kind":"reject_once"}`,
		`{"optionId":"` + strings.Repeat("x", maxOption+1) + `","name":"long","kind":"allow_once"}`, `{"optionId":"odd","name":"Odd","kind":"maybe"}`,
		`{"optionId":"yes","name":"` + strings.Repeat("y", 2*maxOption) + `","kind":"allow_once"}`,
	}
	for i := range 5000 {
		list = append(list, fmt.Sprintf(`{"optionId":"%d","name":"more","kind":"allow_once"}`, i))
	}
	got := options(gjson.Parse(`{"options":[` + strings.Join(list, ",") + `]}`))
	if len(got) != maxOptions-2 {
		t.Fatalf("%d options", len(got))
	}
	if got[0].ID != "no" || got[1].ID != "yes" || len(got[1].Name) > maxOption || got[len(got)-1].ID != "never" {
		t.Errorf("got %+v, %d bytes of a name, and %+v at the end", got[0], len(got[1].Name), got[len(got)-1])
	}
}

// What a question calls its command is what runs: only the text behind the -c of a shell stands for the whole.
func TestCommandOfAQuestion(t *testing.T) {
	for command, want := range map[string]string{
		`"ls -l"`:                       "ls -l",
		`["ls","a b"]`:                  "ls 'a b'",
		`["bash","-lc","ls; id"]`:       "ls; id",
		`["/bin/sh","-c","ls"]`:         "ls",
		`["/usr/bin/zsh","-c","ls"]`:    "ls",
		`["./evil.sh","-c","ls"]`:       "./evil.sh -c ls",
		`["/tmp/bash","-c","ls"]`:       "/tmp/bash -c ls",
		`["refresh","-c","ls"]`:         "refresh -c ls",
		`["bash","--norc","ls"]`:        "bash --norc ls",
		`["bash","-xc","ls"]`:           "bash -xc ls",
		`["bash","-c","ls","x; y"]`:     "bash -c ls 'x; y'",
		`["A=b","ls"]`:                  "'A=b' ls",
		`["bash","-c",{"text":"a\"b"}]`: `bash -c '{"text":"a\"b"}'`,
		`{"program":"ls"}`:              `'{"program":"ls"}'`,
		`null`:                          "",
	} {
		c := call{input: gjson.Parse(`{"command":` + command + `}`)}
		if got := c.command(); got != want {
			t.Errorf("%s is shown as %q, want %q", command, got, want)
		}
	}
}

// A question has all that the program says of the call: its input, and beside it the change of a file. A change of no
// file that is named is allowed once alone.
func TestInputOfAQuestion(t *testing.T) {
	const diff = `"content":[{"type":"diff","path":"/w/a","oldText":"one\ntwo\n","newText":"one\nthree\n"}]`
	always := []protocol.PermissionOption{{ID: "once", Kind: protocol.AllowOnce}, {ID: "always", Kind: protocol.AllowSession}}
	for _, tt := range []struct {
		told, want string
		options    int
	}{
		{`"kind":"execute","title":"t","rawInput":{"command":"ls"}`, `{"command":"ls"}`, 2},
		{`"kind":"edit","title":"Edit a",` + diff, `{"title":"Edit a","paths":["/w/a"],"content":"/w/a\n- two\n+ three"}`, 2},
		{`"kind":"edit","title":"t","rawInput":{"path":"/w/a"},` + diff, `{"title":"t","paths":["/w/a"],"input":{"path":"/w/a"},"content":"/w/a\n- two\n+ three"}`, 2},
		{`"kind":"switch_mode","title":"t","content":[{"type":"content","content":{"type":"text","text":"the plan"}}]`, `{"title":"t","content":"the plan"}`, 2},
		{`"kind":"other","title":"t","rawInput":["rm","/w"]`, `{"title":"t","input":["rm","/w"]}`, 2},
		{`"kind":"edit","title":"Edit something"`, `{"title":"Edit something"}`, 1},
	} {
		told := gjson.Parse(`{"toolCallId":"1",` + tt.told + `}`)
		followed := &turn{calls: map[string]*call{}}
		followed.merge(told)
		for _, turn := range []*turn{followed, {}} { // and one that has too many calls to follow
			q := turn.question(told, slices.Clone(always))
			if string(q.Input) != tt.want || len(q.Options) != tt.options {
				t.Errorf("%s: got %s and %d options, want %s and %d", tt.told, q.Input, len(q.Options), tt.want, tt.options)
			}
		}
	}
}
