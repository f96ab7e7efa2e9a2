// Package terminal is nexus for people: a conversation with an agent at a terminal.
//
//	status := terminal.Run(ctx, client, terminal.Options{Agent: "main", Stdin: os.Stdin, Stdout: os.Stdout})
//
// It is a client of the façade like all others. What an agent does comes from its event
// stream, so two terminals at one agent see the same; commands are those of nexus-rpc, with the
// current agent for their first argument. What is finished goes above the lines that change, into
// the terminal's own scrollback: there is no screen of ours to leave.
//
// What a model, a tool or another agent wrote never acts on the terminal ([cli.Harmless]).
// With [Options.Plain], and where stdin or stdout is no terminal, nothing is drawn twice: lines
// are read and written. The contract is the page OPERATIONS.md, "The terminal".
package terminal
