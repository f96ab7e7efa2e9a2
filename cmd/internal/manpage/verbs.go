package manpage

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Verbs is p with what the verbs of a program say: its flags, and all verbs but those that elsewhere
// reports, which have their place on another page.
func Verbs(root *cobra.Command, p Page, elsewhere func(*cobra.Command) bool) Page {
	p.Program, p.Summary = root.Name(), root.Short
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	p.Flags = root.Flags()
	p.Flags.AddFlagSet(root.PersistentFlags())
	none := pflag.NewFlagSet("", pflag.ContinueOnError)
	var add func(cmd *cobra.Command, before string)
	add = func(cmd *cobra.Command, before string) {
		if !cmd.IsAvailableCommand() || elsewhere != nil && elsewhere(cmd) {
			return
		}
		use := before + strings.TrimSuffix(cmd.Use, " [FLAGS]")
		p.Verbs = append(p.Verbs, Verb{Use: use, About: about(cmd), Flags: own(cmd)})
		for _, below := range cmd.Commands() {
			add(below, before+cmd.Name()+" ")
		}
	}
	for _, cmd := range root.Commands() {
		add(cmd, "")
	}
	p.Verbs = append(p.Verbs,
		Verb{Use: "completion SHELL", About: "Print what completes words of the command line in bash, zsh, fish or powershell.", Flags: none},
		Verb{Use: "help [VERB]", About: "Print the help of a verb; VERB --help is the same.", Flags: none})
	return p
}

// about is what the help of a verb says.
func about(cmd *cobra.Command) string {
	text := cmp.Or(cmd.Long, cmd.Short)
	if cmd.Example != "" {
		text += "\n\n" + cmd.Example
	}
	return sentence(text)
}

// sentence is text with an end.
func sentence(text string) string {
	if text != "" && !strings.ContainsAny(text[len(text)-1:], ".:)\n") && !strings.Contains(text, "\n") {
		text += "."
	}
	return text
}

// own are the flags that are the verb's alone.
func own(cmd *cobra.Command) *pflag.FlagSet {
	set := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && cmd.Root().PersistentFlags().Lookup(f.Name) != f {
			set.AddFlag(f)
		}
	})
	return set
}
