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

// A command that there is not leads to one that begins alike.
func TestUnknownCommand(t *testing.T) {
	for typed, want := range map[string]string{"/permision": "/permissions", "/lst": "", "/statusx": "/status", "/zz": ""} {
		lines, more := (&talk{}).command(typed)
		if len(lines) != 1 || more != nil || !strings.Contains(lines[0], "/help lists them") || !strings.Contains(lines[0], want) {
			t.Errorf("%s: %q", typed, lines)
		}
	}
}
