package main

import (
	"testing"

	"nexus.internal/cmd/internal/manpage"
)

// UPDATE=1 writes the page anew.
func TestManualPage(t *testing.T) {
	f, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	manpage.Compare(t, "../../fixtures/man/nexus-cluster.1", manpage.Page{
		Program: "nexus-cluster", Summary: "A machine's part of a cluster of nexus servers", Flags: f.set,
		Synopsis: []string{"nexus-cluster [FLAGS]", "nexus-cluster version"},
		About: `nexus-cluster is a server of NATS by which the machines of a cluster know each other, agree on which machine has which agent, and connect. nexus(1) starts it for nexus serve --cluster, and starts it again when it dies: nobody else needs to.

It reads a line of JSON on stdin, which says what it is:

  {"cluster":"farm","machine":"a","listen":"10.0.0.1:8766","join":["10.0.0.1:8766","10.0.0.2:8766","10.0.0.3:8766"],"dir":"DIR","socket":"PATH","certificates":"DIR"}

listen is where the other machines reach it, join are the addresses of all machines, its own, too. In dir is kept what the machines agree on. socket is where a unix socket is made for clients. certificates is a directory that nexus cluster init made; it may be left out where listen is on loopback. Once it takes clients, it writes a line on stdout: {"socket":"PATH","token":"TOKEN"}. Clients are programs of the same user, and send the token. It ends when stdin does. Its log is on stderr.`,
		Also: []manpage.Section{
			{Title: "EXIT STATUS", Entries: []manpage.Entry{
				{Word: "0", About: "After the end of stdin, or a signal."},
				{Word: "1", About: "It could not start. The reason is on stderr."},
				{Word: "2", About: "The command line is wrong."},
			}},
			manpage.SeeAlso("nexus(1), nexus-rpc(1), nexus-child(1)"),
		},
	})
}
