package main

import "github.com/spf13/cobra"

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
