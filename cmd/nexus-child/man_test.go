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
	manpage.Compare(t, "../../fixtures/man/nexus-child.1", manpage.Page{
		Program: "nexus-child", Summary: "One AI agent on stdin and stdout", Flags: f.set,
		Synopsis: []string{"nexus-child [rpc] [FLAGS]", "nexus-child schema", "nexus-child version"},
		About: `nexus-child is one agent. It reads commands on stdin and writes events on stdout, a JSON object on each line; its log is on stderr. The server, nexus(1), starts one for each of its agents; a program that needs no server can start it as well.

  printf '{"type":"prompt","id":"1","message":"hello"}\n' | nexus-child

nexus-child schema prints the JSON Schema of these lines, and SPEC.md has their rules. The word rpc is accepted and ignored. The server runs nexus-child check, which checks code, and nexus-child spare, which waits until it is made an agent.`,
		Also: []manpage.Section{
			{Title: "EXIT STATUS", Entries: []manpage.Entry{
				{Word: "0", About: "After shutdown, a signal, or the end of stdin."},
				{Word: "1", About: "stdout was lost."},
				{Word: "2", About: "The agent could not start. The reason is on stderr."},
				{Word: "65", About: "The session cannot be read."},
				{Word: "75", About: "Another process uses the session."},
				{Word: "78", About: "A program of a later version has used the home."},
			}},
			{Title: "ENVIRONMENT", Entries: []manpage.Entry{
				{Word: "NEXUS_HOME", About: "The home directory of nexus; otherwise ~/.nexus3."},
				{Word: "NEXUS3_SYSTEM", About: "The system prompt, with --system-env."},
			}},
			manpage.SeeAlso("nexus(1), nexus-rpc(1)"),
		},
	})
}
