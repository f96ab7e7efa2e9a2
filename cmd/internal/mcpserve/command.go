package mcpserve

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol/shellword"
)

const help = `Offer the agents of the server as MCP tools on stdin and stdout, for programs that speak to models: Claude Code,
Claude Desktop, Codex and editors. The program starts this one:

  claude mcp add nexus -- nexus mcp

The tools are create_agent, send, status, cancel and run_plan. A call looks for the home's server, and starts one
where none runs. Agents work in this directory unless create_agent names another one (cwd).`

// Command is the verb mcp.
func Command(app *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "mcp [FLAGS]", Short: "Offer the agents as MCP tools on stdin and stdout", Long: help, DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 { // meant for the verb of nexus-rpc
				return cli.Usage("nexus mcp takes no arguments: the MCP servers of an agent are those of nexus-rpc mcp %s", shellword.Quote(args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), app)
		},
	}
	app.StartFlag(cmd)
	return cli.Without(cmd, "what it prints is the Model Context Protocol", "output", "json")
}

// maxCalls is how many calls of tools run at once; one more is a tool error.
const maxCalls = 64

// bridge calls the server for tools. It is safe for concurrent use.
type bridge struct {
	finding sync.Mutex // held while the server is looked for: two would be started
	app     *cli.App
	room    chan struct{} // an item for each call that runs

	arguments map[string][]string // of each tool, by its name; it does not change once tools are called
}

// serve speaks until stdin ends.
func serve(ctx context.Context, app *cli.App) error {
	b := &bridge{app: app, room: make(chan struct{}, maxCalls), arguments: map[string][]string{}}
	server := mcp.NewServer(&mcp.Implementation{Name: "nexus", Title: "nexus agents", Version: app.Version}, &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}, // they never change
	})
	if err := b.addTools(server); err != nil {
		return err
	}
	server.AddReceivingMiddleware(b.wrongArguments)
	return server.Run(ctx, newStdio(app.Stdin, app.Stdout))
}

// server finds the server, or starts one. The caller must close the client.
func (b *bridge) server(ctx context.Context) (*client.Client, error) {
	b.finding.Lock()
	defer b.finding.Unlock()
	return b.app.Reach(ctx, true)
}
