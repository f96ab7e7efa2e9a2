package main

import (
	"testing"

	"nexus.internal/cmd/internal/manpage"
)

// UPDATE=1 writes the page anew.
func TestManualPage(t *testing.T) {
	page := manpage.Verbs(program().Root(), manpage.Page{
		Synopsis: []string{"nexus-rpc VERB [ARGUMENT…] [FLAGS]"},
		About: `nexus-rpc asks something of a nexus server: each verb is one request, or a few.

  nexus-rpc create chat
  nexus-rpc send chat 'What is in this directory?'

The server is that at --port, else at $NEXUS_PORT, else the one of the home, else the one at port 8765. list, create, load, open and rpc start a server of the home where none runs, unless --no-start is given.

A key is sent only to a server that has proved that it has it. The verbs are those of nexus, too: nexus send is nexus-rpc send.`,
		Also: []manpage.Section{manpage.Statuses(), manpage.Variables(), manpage.Files(), manpage.SeeAlso("nexus(1), nexus-child(1)")},
	}, nil)
	manpage.Compare(t, "../../fixtures/man/nexus-rpc.1", page)
}
