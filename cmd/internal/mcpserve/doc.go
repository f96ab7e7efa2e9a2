// Package mcpserve offers the agents of a server to other programs as MCP tools, on stdin
// and stdout.
//
//	app.Add(mcpserve.Command(app)) // nexus mcp
//
// Each call of a tool looks for the server anew, and starts one where none runs, as the verbs
// of package cli do: a server that was ended or killed costs one failed call at most. What goes
// wrong in a call is a tool error, for the model to read. A line that is no message of MCP is
// answered with an error and costs nothing else. At the end of stdin the open calls are cancelled, and
// every other request is answered.
//
// It imports the official SDK of MCP, which nothing else of the programs does.
package mcpserve
