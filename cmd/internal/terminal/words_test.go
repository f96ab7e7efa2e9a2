package terminal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"nexus.internal/protocol"
)

// The words of a command have the quotes of a shell; a message is as it was typed, and a quote that is not closed is said.
func TestWordsOfCommands(t *testing.T) {
	for typed, want := range map[string]string{
		"/new it's":      "/new: a quote is not closed",
		`/fork a\`:       "/fork: a quote is not closed, or nothing stands behind the last backslash",
		`/fork "a" 'b'`:  "usage: /fork NAME",
		"/send foo":      "usage: /send AGENT MESSAGE",
		"/nothing it's":  "no command /nothing",
		`/quit "now"`:    "usage: /quit",
		`/events "1000`:  "/events: a quote",
		`/load "a b" ''`: "usage: /load SESSION",
	} {
		lines, more := (&talk{}).command(typed)
		if len(lines) != 1 || more != nil || !strings.Contains(lines[0], want) {
			t.Errorf("%s: %q", typed, lines)
		}
	}
	if word, rest := firstWord(" \tsend  foo it's \\ \"a b\"  "); word != "send" || rest != `foo it's \ "a b"` {
		t.Errorf("%q, %q", word, rest)
	}
}

// Tab writes names with white space so that commands and mentions read them again, also where they were begun in quotes.
func TestCompletingNamesWithSpaces(t *testing.T) {
	m := drawnTalk(t)
	dir := t.TempDir()
	m.t.o.Cwd = dir
	for _, name := range []string{"sp ace/sub dir", "sp ace two", "ä1", "ö2"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "sp ace", "it's a file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for typed, want := range map[string]string{
		"/cwd sp":              `/cwd sp\ ace`,
		`/cwd sp\ ace/`:        `/cwd sp\ ace/`, // there are two
		`/cwd "sp ace/s`:       `/cwd sp\ ace/sub\ dir/`,
		`/cwd 'sp ace'/s`:      `/cwd sp\ ace/sub\ dir/`,
		"/cwd ":                "/cwd ", // they have nothing in common
		"/stat":                "/status ",
		"look at @sp":          `look at @sp\ ace`,
		`it's in @sp\ ace/i`:   `it's in @sp\ ace/it\'s\ a\ file `,
		`it's in @"sp ace/it'`: `it's in @sp\ ace/it\'s\ a\ file `,
		"no mention: a@sp":     "no mention: a@sp",
	} {
		m.input.SetValue(typed)
		m.Update(m.completing()())
		if got := m.input.Value(); got != want {
			t.Errorf("%q became %q, want %q", typed, got, want)
		}
	}
	m.input.SetValue("/cwd sp")
	m.Update(m.completing()())
	if !slices.Equal(m.choices, []string{`sp\ ace\ two/`, `sp\ ace/`}) {
		t.Errorf("shown: %q", m.choices)
	}
}

// A mention of a file may have white space, in quotes or behind backslashes; one of a name with a backslash is as before.
func TestMentionsWithSpaces(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a b", "it's", `back\slash`, "plain"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		`see @"a b", please`: "a b", `see @'a b'`: "a b", `@a\ b`: "a b", `@a\ b, @plain.`: "a b", "(@plain)": "", "@plain, @plain!": "plain plain",
		`@it\'s a "word"`: "it's", "it's @it's": "it's", `@back\slash`: `back\slash`, `@"none" @" @' @`: "", `@"a b" @'a b' @plain`: "a b a b plain",
	} {
		list, _, err := attachments(dir, text)
		var names []string
		for _, a := range protocol.Value(list) {
			names = append(names, protocol.Value(a.Name))
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%s brings %q, %v; want %q", text, got, err, want)
		}
	}
}

// A word behind @ that looks like a path and is no file is named, as a misspelt one: the message goes without it. One that may be a person's name is not.
func TestMentionsOfNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"see @a.txt, @b.txt and @src/c": "b.txt|src/c", "ask @bob, @bob. and me@example.com": "", `see @"a b" and @a\ c`: "a b|a c", "@~/no-such-file": "~/no-such-file", "@a.txt @...": "",
	} {
		_, missing, err := attachments(dir, text)
		if got := strings.Join(missing, "|"); err != nil || got != want {
			t.Errorf("%s misses %q, %v; want %q", text, got, err, want)
		}
	}
	m := drawnTalk(t)
	m.t.o.Cwd = dir
	m.t.queued = []message{{agent: "a", id: "0", known: make(chan error)}} // so that nothing is sent from here
	m.input.SetValue("read @b.txt")
	m.enter(false)
	if said := ansi.Strip(strings.Join(m.lines, "\n")); !strings.Contains(said, "· no file b.txt: sent as text") || len(m.t.queued) != 2 {
		t.Errorf("it says %q, and %d messages wait", said, len(m.t.queued))
	}
}
