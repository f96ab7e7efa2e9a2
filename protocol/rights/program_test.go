package rights_test

import (
	"slices"
	"testing"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// A program of another make counts as a shell that nobody is asked about, unless the kernel keeps it in: whatever is said of its agent's own shell.
func TestOfProgram(t *testing.T) {
	all := []string{"/"}
	sender := protocol.Permissions{Preset: rights.Trusted, AllowedPaths: all}
	unasked := protocol.Permissions{Preset: rights.Trusted, AllowedPaths: all, Tools: map[string]protocol.ToolRule{"shell": {Mode: rights.ModeAllow}}}
	for name, test := range map[string]struct {
		theirs protocol.Permissions
		sender protocol.Permissions
		widens bool
	}{
		"trusted, beside one who is asked":      {theirs: protocol.Permissions{Preset: rights.Trusted, AllowedPaths: all}, sender: sender, widens: true},
		"trusted, beside one who is not":        {theirs: protocol.Permissions{Preset: rights.Trusted, AllowedPaths: all}, sender: unasked},
		"its own shell is disabled":             {theirs: protocol.Permissions{Preset: rights.Trusted, AllowedPaths: all, DisabledTools: []string{"shell"}}, sender: sender, widens: true},
		"its own shell asks":                    {theirs: protocol.Permissions{Preset: rights.Trusted, AllowedPaths: all, Tools: map[string]protocol.ToolRule{"shell": {Mode: rights.ModeAsk}}}, sender: sender, widens: true},
		"sandboxed":                             {theirs: protocol.Permissions{Preset: rights.Sandboxed, AllowedPaths: all}, sender: sender},
		"sandboxed, beside one without a shell": {theirs: protocol.Permissions{Preset: rights.Sandboxed, AllowedPaths: all}, sender: protocol.Permissions{Preset: rights.Trusted, AllowedPaths: all, DisabledTools: []string{"shell"}}, widens: true},
	} {
		disabled := slices.Clone(test.theirs.DisabledTools)
		over := rights.Beyond(rights.OfProgram(test.theirs), test.sender)
		if (len(over) > 0) != test.widens {
			t.Errorf("%s: %q", name, over)
		}
		if !slices.Equal(test.theirs.DisabledTools, disabled) {
			t.Errorf("%s: it has changed what it was given", name)
		}
	}
}
