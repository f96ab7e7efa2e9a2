package acpserve

import (
	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/cli"
)

const help = `Let an editor that speaks the Agent Client Protocol (Zed, JetBrains, Neovim and others) use agents of the server. The
editor starts this program and speaks with it on stdin and stdout; in the settings of Zed:

  "agent_servers": {"nexus": {"type": "custom", "command": "nexus", "args": ["acp"]}}

Each session of the editor is an agent, named after the directory: acp-DIRECTORY-XXXXXXXX. It lives on when the editor
ends, with its conversation, and every other verb and client can use it; a turn that runs then is cancelled. A session
that is loaded can be any saved agent. A server is started where none runs.`

// options are the flags.
type options struct {
	agent, cwd, model, preset string
}

// Command is the verb acp.
func Command(app *cli.App) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "acp [FLAGS]", Short: "Let an editor use agents, over the Agent Client Protocol on stdin and stdout", Long: help, DisableFlagsInUseLine: true,
		Args: cli.Args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.cwd != "" {
				if o.cwd, err = cli.Absolute(o.cwd); err != nil {
					return err
				}
			}
			return serve(cmd.Context(), app, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.agent, "agent", "", "the agent of every new session: one that runs, that is saved, or that is created by this name (default: a new agent for each)")
	flags.StringVar(&o.cwd, "cwd", "", "working directory of new agents (default: the one that the editor names)")
	flags.StringVar(&o.model, "model", "", "model of new agents, as ID or PROVIDER/ID (default: the configuration's)")
	flags.StringVar(&o.preset, "preset", "", "permissions of new agents: trusted, sandboxed, a preset of the configuration, or yolo if server.allow_yolo is set (default: the configuration's)")
	app.StartFlag(cmd)
	return cli.Without(cmd, "what it prints is the Agent Client Protocol", "output", "json")
}
