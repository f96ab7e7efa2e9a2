package cli

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// verbs are the verbs of nexus-rpc.
func (a *App) verbs() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: "detect", Short: "Tell what listens on the port", Args: exactArgs(0),
			RunE: func(cmd *cobra.Command, _ []string) error { return a.detect(cmd.Context()) },
		},
		a.verb("list", "list_agents", 0, mayStart, a.list),
		a.createVerb(),
		a.verb("stop AGENT", "shutdown", 1, mustRun, a.stop),
		a.verb("destroy AGENT", "destroy_agent", 1, mustRun, a.destroy),
		a.sendVerb(),
		a.verb("status AGENT", "", 1, mustRun, a.status),
		a.cancelVerb(),
		a.approvalsVerb(),
		a.allowVerb(),
		a.denyVerb(),
		a.planVerb(),
		a.verb("shutdown", "shutdown_server", 0, mustRun, a.shutdown),
		a.sessionsVerb(),
		a.loadVerb(),
		a.saveVerb(),
		a.verb("clone SESSION NAME", "clone_session", 2, mustRun, a.clone),
		a.verb("rename SESSION NAME", "rename_session", 2, mustRun, a.rename),
		a.verb("delete SESSION", "delete_session", 1, mustRun, a.delete),
		a.importVerb(),
		a.messagesVerb(),
		a.eventsVerb(),
		a.keysVerb(),
		a.openVerb(),
		a.callVerb(),
		a.versionVerb(),
	}
}

// verb is one that needs a server. Its summary is that of the method.
func (a *App) verb(use, method string, args int, start bool, do func(context.Context, *client.Client, []string) error) *cobra.Command {
	summary := "Describe an agent"
	if m, ok := api.Find(method); ok {
		summary = m.Summary
	}
	cmd := &cobra.Command{
		Use: use, Short: summary, Args: exactArgs(args), DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd.Context(), start)
			if err != nil {
				return err
			}
			defer c.Close()
			return do(cmd.Context(), c, args)
		},
	}
	if start {
		cmd.Flags().BoolVar(&a.noStart, "no-start", false, "start no server if none runs")
	}
	return cmd
}

func (a *App) createVerb() *cobra.Command {
	var p api.CreateAgentParams
	var trusted, sandboxed bool
	cmd := a.verb("create [AGENT] [FLAGS]", "create_agent", 0, mayStart, func(ctx context.Context, c *client.Client, args []string) error {
		if len(args) == 1 {
			p.AgentID = &args[0]
		}
		if err := api.Check(p); err != nil {
			return err
		}
		if p.Cwd == nil {
			here, err := workingDir()
			if err != nil {
				return err
			}
			p.DefaultCwd = &here
		}
		return a.create(ctx, c, p)
	})
	cmd.Args = MaxArgs(1)
	flags := cmd.Flags()
	flags.BoolVar(&trusted, "trusted", false, "the same as --preset trusted")
	flags.BoolVar(&sandboxed, "sandboxed", false, "the same as --preset sandboxed")
	text := map[string]**string{
		"preset": &p.Preset, "model": &p.Model, "provider": &p.Provider, "cwd": &p.Cwd, "system": &p.SystemPrompt,
		"approvals": &p.Approvals, "if-exists": &p.IfExists,
	}
	flags.String("preset", "", "permission level: trusted or sandboxed")
	flags.String("model", "", "model, as ID or PROVIDER/ID")
	flags.String("provider", "", "provider of the model")
	flags.String("cwd", "", "working directory (default: this one; a saved agent keeps its own)")
	flags.String("system", "", "system prompt")
	flags.String("approvals", "", "what becomes of calls that want an approval: ask (see approvals) or deny")
	flags.String("if-exists", "", "where an agent of that name runs: fail (the default) or use it")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for name, target := range text {
			if value := flags.Lookup(name); value.Changed {
				given := value.Value.String()
				*target = &given
			}
		}
		for preset, chosen := range map[string]bool{rights.Trusted: trusted, rights.Sandboxed: sandboxed} {
			if chosen && p.Preset != nil {
				return Usage("--preset, --trusted and --sandboxed exclude each other")
			}
			if chosen {
				p.Preset = &preset
			}
		}
		return absolute(p.Cwd)
	}
	return cmd
}

// workingDir is where agents work that get no --cwd.
func workingDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory, for want of --cwd: %w", err)
	}
	return dir, nil
}

func (a *App) create(ctx context.Context, c *client.Client, p api.CreateAgentParams) error {
	created, err := client.Do(ctx, c, "", api.CreateAgent, p)
	if kindOf(err) == api.KindAgentExists && p.IfExists == nil {
		return fmt.Errorf("%s: use it with --if-exists use, or destroy it first", err.Error())
	}
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(created)
	case created.Existing:
		return a.printf("%s is there (%s)\n", created.AgentID, Counted(protocol.Value(created.MessageCount), "message"))
	case created.Restored:
		return a.printContinued(created.AgentID, protocol.Value(created.MessageCount), created.NarrowedFrom)
	}
	return a.printf("created %s\n", created.AgentID)
}

// stop stops an agent's process. An agent that does not run is stopped already.
func (a *App) stop(ctx context.Context, c *client.Client, args []string) error {
	found, err := findAgent(ctx, c, args[0])
	if err != nil && kindOf(err) != api.KindNotPermitted { // a key of the agent lists no others
		return err
	}
	said := "stopped %s: the next request to it starts it again\n"
	if found.Session != nil || found.Agent != nil && found.Agent.State == "stopped" {
		said = "%s does not run: the next request to it starts it\n"
	}
	stopped, err := client.Do(ctx, c, args[0], api.Shutdown, api.None{})
	return a.done(stopped, err, said, args[0])
}

func (a *App) destroy(ctx context.Context, c *client.Client, args []string) error {
	if err := api.CheckAgentID(args[0]); err != nil { // the server would say that there is none
		return err
	}
	destroyed, err := client.Do(ctx, c, "", api.DestroyAgent, api.AgentIDParams{AgentID: args[0]})
	switch {
	case err != nil:
		return err
	case a.json:
		if err := a.printJSON(destroyed); err != nil {
			return err
		}
	}
	if !destroyed.Success {
		return fmt.Errorf("no agent %s", args[0])
	}
	return a.say("destroyed %s\n", args[0])
}

// cancelVerb cancels a send, or a run where there is no agent.
func (a *App) cancelVerb() *cobra.Command {
	cmd := a.verb("cancel [AGENT] REQUEST_ID", "cancel", 2, mustRun, a.cancel)
	cmd.Long = "Cancel a send of AGENT that waits or runs; without AGENT, a run of a plan, by its name."
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return exactArgs(2)(cmd, args)
	}
	return cmd
}

func (a *App) cancel(ctx context.Context, c *client.Client, args []string) error {
	if len(args) == 1 {
		args = []string{"", args[0]}
	}
	cancelled, err := client.Do(ctx, c, args[0], api.Cancel, api.CancelParams{RequestID: args[1]})
	switch {
	case err != nil:
		return err
	case a.json:
		if err := a.printJSON(cancelled); err != nil {
			return err
		}
	}
	if !cancelled.Cancelled && args[0] == "" {
		agents, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
		if err == nil && slices.ContainsFunc(agents.Agents, func(agent api.AgentInfo) bool { return agent.AgentID == args[1] }) {
			return Usage("%s is an agent: name the send, too, by its REQUEST_ID (%s status %s shows that which runs)", args[1], a.self(), args[1])
		}
		return fmt.Errorf("nothing to cancel: the run %s is not known, or did not end by that", args[1])
	}
	if !cancelled.Cancelled {
		return fmt.Errorf("nothing to cancel: request %s of %s is not known or has ended", args[1], args[0])
	}
	return a.say("cancelled %s\n", args[1])
}

// shutdown returns once the server is gone, if it is one of our home.
func (a *App) shutdown(ctx context.Context, c *client.Client, _ []string) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	gone := watchServer(string(cfg.Home), a.Port)
	if _, err := client.Do(ctx, c, "", api.ShutdownServer, api.None{}); err != nil {
		gone.forget()
		return err
	}
	if a.json {
		if err := a.printJSON(api.SuccessResult{Success: true}); err != nil {
			return err
		}
	}
	if !gone.wait() {
		return a.say("the server is shutting down\n")
	}
	return a.say("the server has ended\n")
}
