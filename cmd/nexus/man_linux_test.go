package main

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/manpage"
)

// UPDATE=1 writes the page anew. Verbs that nexus-rpc has as well are on its page.
func TestManualPage(t *testing.T) {
	shared := cli.New(cli.Options{Name: "nexus-rpc"}).Root().Commands()
	page := manpage.Verbs(program().Root(), manpage.Page{
		Synopsis: []string{"nexus [FLAGS]", "nexus serve [PORT] [FLAGS]", "nexus VERB [ARGUMENT…] [FLAGS]"},
		About: `nexus runs AI agents, each in a process of its own. Without a verb it is a talk with an agent at a terminal, in the directory where it was started; it finds the server of the home, or starts one.

  nexus
  nexus --resume
  echo 'What is in this directory?' | nexus --fresh

nexus serve is the server. It listens on 127.0.0.1 alone, and prints where the file with its key is. The kernel confines the programs that agents start; nexus doctor tells whether it can here.

The verbs of nexus-rpc(1), such as list, create and send, are verbs of nexus, too. Below are those that nexus alone has.`,
		Also: []manpage.Section{manpage.Statuses(), manpage.Variables(), manpage.Files(), manpage.SeeAlso("nexus-rpc(1), nexus-child(1), nexus-cluster(1)")},
	}, func(cmd *cobra.Command) bool {
		return slices.ContainsFunc(shared, func(other *cobra.Command) bool { return other.Use == cmd.Use && other.Short == cmd.Short })
	})
	manpage.Compare(t, "../../fixtures/man/nexus.1", page)
}
