package cli

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/badflag"
	"nexus.internal/protocol/suggest"
)

// VerbsOnly is a usage error for an argument of a verb that takes verbs alone: it is
// none of them.
func VerbsOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownVerb(cmd, args[0])
	}
	return nil
}

// nexusVerbs are the verbs that nexus has and nexus-rpc has not.
var nexusVerbs = []string{"backup", "chaos", "config", "restore", "serve"}

// unknownVerb is the usage error for a verb that parent has not.
func unknownVerb(parent *cobra.Command, name string) error {
	var names []string
	if !parent.HasParent() {
		if parent.Name() != "nexus" && slices.Contains(nexusVerbs, name) {
			return Usage("unknown verb %q: it is one of nexus (nexus %s)", name, name)
		}
		names = append(names, "help") // which cobra does not count
	}
	for _, verb := range parent.Commands() {
		if verb.IsAvailableCommand() {
			names = append(names, verb.Name())
		}
	}
	if near := suggest.Nearest(name, names); near != "" {
		return Usage("unknown verb %q: did you mean %s %s?", name, parent.CommandPath(), near)
	}
	return Usage("unknown verb %q: see %s --help", name, parent.CommandPath())
}

// help is what --help does: it prints the help of a command, unless the argument that was
// to be one of its verbs is none.
func (a *App) help(show func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, args []string) {
		if unknown := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(unknown) > 0 {
			a.helpErr = unknownVerb(cmd, unknown[0])
			return
		}
		show(cmd, args)
	}
}

// prepare prepares cmd and all below it to be run. Each gets --help before cobra looks for
// the verb: else it takes VERB of --help VERB for the value of a flag that it does not know.
// Each refuses texts that cannot be meant before it looks at its arguments.
func prepare(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	rules := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := checkTexts(cmd, args); err != nil || rules == nil {
			return err
		}
		return rules(cmd, args)
	}
	for _, verb := range cmd.Commands() {
		prepare(verb)
	}
}

// checkTexts is a usage error for a flag or an argument that is empty or not UTF-8. A system
// prompt may be empty. The name of a file may have any bytes.
func checkTexts(cmd *cobra.Command, args []string) error {
	if problem := badflag.Text(cmd.Flags(), "system"); problem != "" {
		return Usage("%s", problem)
	}
	for i, arg := range args {
		switch name := argumentName(cmd, len(args), i); {
		case arg == "":
			return Usage("%s is empty", name)
		case !utf8.ValidString(arg) && name != "FILE":
			return Usage("%s is not UTF-8", name)
		}
	}
	return nil
}

// argumentName is how the usage of cmd names argument i of n.
func argumentName(cmd *cobra.Command, n, i int) string {
	names := slices.DeleteFunc(strings.Fields(cmd.Use)[1:], func(word string) bool { return word == "[FLAGS]" })
	if n < len(names) { // the optional ones were left out
		names = slices.DeleteFunc(names, func(name string) bool { return name[0] == '[' })
	}
	if len(names) == 0 {
		return "an argument"
	}
	return strings.Trim(names[min(i, len(names)-1)], "[]…")
}

// helpVerb is help VERB, the same as VERB --help.
func helpVerb(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [VERB]", Short: "Help about a verb", DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			verb, rest, err := root.Find(args)
			if len(rest) > 0 {
				return unknownVerb(verb, rest[0])
			}
			if err != nil {
				return Usage("%v", err)
			}
			return verb.Help()
		},
	}
}

// version prints the version of the program.
func version(_ context.Context, a *App, _ []string) error {
	said := struct {
		Version  string `json:"version"`
		Go       string `json:"go"`
		Platform string `json:"platform"` // OS/ARCH
	}{a.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	return a.done(said, nil, "%s version %s\n", a.Name, a.Version)
}
