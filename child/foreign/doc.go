// Package foreign runs an agent of another make in the place of a model and the tools of
// nexus: a program such as an ACP agent or a coding assistant at its own protocol. Its child
// keeps the conversation, asks its parent for approvals and ends with it as any other.
//
//	agent, err := foreign.Open(ctx, foreign.Options{Program: p, Driver: acp.Driver{}, Start: start, …})
//	result := agent.Run(ctx, foreign.Turn{Input: in, Journal: j, Conversation: c, Listener: l})
//	<-agent.Gone() // the program has ended by itself: agent.Err
//	agent.Close()
//
// A [Driver] knows one protocol, in a package of its own below this one. It opens a [Session]
// with a program, and turns what the program says into the calls of a [Sink]. What all have in
// common stands here: the program's process and its lines, what a turn leaves in the
// conversation and in the journal, how a conversation is gone on with, and what the end of the
// program means.
//
// An Agent runs one turn at a time. Its goroutines are one for each program, which waits for its
// end, and those of the driver; Close joins them. See SPEC.md §4.11.
package foreign
