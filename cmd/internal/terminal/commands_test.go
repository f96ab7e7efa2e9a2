package terminal

import (
	"strings"
	"testing"

	"nexus.internal/cmd/internal/cli"
)

// Each command that is a verb is one of nexus-rpc, and takes an agent if the current one is its; /help
// has all commands with what they do.
func TestCommandsAreVerbs(t *testing.T) {
	all := cli.Verbs()
	for name, how := range verbs {
		verb, ok := all[name]
		if !ok || how != named && !strings.Contains(verb.Args, "AGENT") {
			t.Errorf("/%s: %+v", name, verb)
		}
		if _, own := commands()[name]; own {
			t.Errorf("there are two commands /%s", name)
		}
	}
	lines, _ := showHelp(&talk{}, nil)
	if !strings.Contains(strings.Join(lines, "\n"), "-o json, yaml or name behind a command") {
		t.Error("/help does not explain -o")
	}
	for _, name := range names() {
		found := false
		for _, line := range lines {
			head, help, _ := strings.Cut(strings.TrimSpace(line), ": ")
			found = found || (head == "/"+name || strings.HasPrefix(head, "/"+name+" ")) && help != ""
		}
		if !found {
			t.Errorf("/help does not explain /%s", name)
		}
	}
}

// A command that there is not leads to the one that is near, if any is.
func TestUnknownCommand(t *testing.T) {
	for typed, want := range map[string]string{"/permision": "/permissions", "/lst": "/list", "/statusx": "/status", "/zz": ": /help", "/foo": "/foo: /help", "/f": ": /help"} {
		lines, more := (&talk{}).command(typed)
		if len(lines) != 1 || more != nil || !strings.Contains(lines[0], "/help lists them") || !strings.Contains(lines[0], want) {
			t.Errorf("%s: %q", typed, lines)
		}
	}
}

// What a command cannot take is refused before anything is asked; no help speaks of stdin, which there is not.
func TestWhatCommandsTake(t *testing.T) {
	for _, typed := range []string{"/shutdown x", "/destroy a b"} {
		talk := &talk{agent: "a"}
		if lines, more := talk.command(typed); len(lines) != 1 || more != nil || talk.question != nil || !strings.Contains(lines[0], "usage: /") {
			t.Errorf("%s: %q, asked: %v", typed, lines, talk.question)
		}
	}
	for name := range verbs {
		if help := strings.Join(verbHelp(look{}, name), " "); strings.Contains(help, "stdin") {
			t.Errorf("/help %s: %s", name, help)
		}
	}
}
