package cli_test

import (
	"slices"
	"testing"

	"nexus.internal/cmd/internal/cli"
)

// The arguments of a verb are what is no flag and no value of one.
func TestParseVerb(t *testing.T) {
	for _, tt := range []struct{ args, want []string }{
		{[]string{"approvals", "-o", "name"}, nil},
		{[]string{"approvals", "-oname", "a"}, []string{"a"}},
		{[]string{"messages", "--limit", "1", "a", "--offset=2", "--json"}, []string{"a"}},
		{[]string{"status", "--json", "a"}, []string{"a"}},
		{[]string{"deny", "a", "--reason", "no b", "1"}, []string{"a", "1"}},
		{[]string{"create", "a", "--", "grep", "-h", "--approvals"}, []string{"a", "grep", "-h", "--approvals"}},
	} {
		flags, err := cli.ParseVerb(tt.args[0], tt.args[1:])
		if err != nil || !slices.Equal(flags.Args(), tt.want) || flags.Changed("approvals") {
			t.Errorf("%q: %q, %v", tt.args, flags.Args(), err)
		}
	}
	for _, args := range [][]string{{"approvals", "-o"}, {"stop", "--bogus", "a"}, {"messages", "--limit", "x"}} {
		if flags, err := cli.ParseVerb(args[0], args[1:]); err == nil || flags.NArg() > 0 {
			t.Errorf("%q: %q", args, flags.Args())
		}
	}
}
