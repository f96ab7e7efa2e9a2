// Package acpserve lets an editor use agents of a server over the Agent Client Protocol, version 1, on
// stdin and stdout.
//
//	app.Add(acpserve.Command(app)) // nexus acp
//
// A session of the protocol is an agent of the server, by its name: it outlives the editor, this
// program and the server. Each request of the editor finds the server anew, and starts one where
// none runs.
//
// One goroutine reads stdin, one runs for each request of the editor, and one for each question to it; all
// are joined when stdin ends. What a turn tells is written by the goroutine of its prompt, so it is
// in the order of the agent's events, and before the answer to the prompt. No line that is written
// has more than 1 MiB; of what is read, a longer line than 16 MiB is refused and costs nothing else.
//
// It takes no MCP servers from the editor: an agent has those of its own configuration.
package acpserve
