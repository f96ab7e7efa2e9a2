package main

import (
	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/cli"
)

// flagUsage gives a flag of all verbs another text in the help of one verb, for which it
// means something else. It is called before the verb is added.
func flagUsage(cmd *cobra.Command, name, usage string) {
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if flag := cmd.InheritedFlags().Lookup(name); flag != nil {
			flag.Usage = usage
		}
		help(cmd, args)
	})
}

// withoutFlags refuses flags of all verbs that one verb cannot honour, and leaves
// them out of its help. It is called before the verb is added.
func withoutFlags(cmd *cobra.Command, why string, names ...string) {
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				return cli.Usage("%s has no --%s: %s", cmd.Name(), name, why)
			}
		}
		return nil
	}
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		for _, name := range names {
			if flag := cmd.InheritedFlags().Lookup(name); flag != nil {
				flag.Hidden = true
			}
		}
		help(cmd, args)
	})
}
