package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// withoutFlag, with the name of a flag of all verbs behind it, is the annotation of a command that
// says why it has not that flag.
const withoutFlag = "without --"

// Without refuses flags of all verbs that a verb, and those below it, cannot honour, and leaves them out of
// their help. Why says so to a person who gives one.
func Without(cmd *cobra.Command, why string, names ...string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	for _, name := range names {
		cmd.Annotations[withoutFlag+name] = why
	}
	return cmd
}

// whyWithout says why a verb has not a flag of all verbs; "" if it has.
func whyWithout(cmd *cobra.Command, name string) (why string) {
	for ; cmd != nil && why == ""; cmd = cmd.Parent() {
		why = cmd.Annotations[withoutFlag+name]
	}
	return why
}

// checkFlags is a usage error for a flag that the verb cannot honour.
func checkFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if why := whyWithout(cmd, f.Name); why != "" && err == nil {
			err = Usage("%s has no --%s: %s", strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), f.Name, why)
		}
	})
	return err
}

// withoutRefused shows the help of a verb without the flags that it refuses.
func withoutRefused(cmd *cobra.Command, show func()) {
	var hidden []*pflag.Flag
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && whyWithout(cmd, f.Name) != "" {
			f.Hidden, hidden = true, append(hidden, f)
		}
	})
	show()
	for _, f := range hidden { // other verbs have them
		f.Hidden = false
	}
}
