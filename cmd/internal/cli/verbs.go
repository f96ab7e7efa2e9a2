package cli

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// row is one row of the table of verbs.
type row struct {
	use         string     // with the arguments
	least, most int        // how many arguments there may be
	start       bool       // a server is started where none runs
	of          api.Method // the method that the verb is for; zero for none or several
	short, long string     // help: one line (default: the method's summary), and more than that
	wakes       bool       // it is about the agent args[0], whose saved session is gone on with if it does not run
	names       string     // where its values have names (Named); "" if there are none
	do          verb
	without     withoutFlags
	verbs       []row // of its own
}

// withoutFlags says which flags of all verbs a verb has not, and why.
type withoutFlags struct {
	why   string
	flags []string
}

// noServer is that of a verb that needs no server.
func noServer(more ...string) withoutFlags {
	return withoutFlags{"it needs no server", append([]string{"port", "server", "ca", "api-key"}, more...)}
}

// verb is the work of a verb.
type verb interface {
	// run does it with a server. Flags and arguments are those that were checked.
	run(ctx context.Context, a *App, c *client.Client, args []string) error
}

type (
	// flagged is a verb that has flags.
	flagged interface{ flags(f *pflag.FlagSet) }

	// checked is a verb that has rules for its arguments and flags besides their number
	// and types. Its error is a usage error.
	checked interface {
		check(f *pflag.FlagSet, args []string) error
	}
)

// action is a verb without flags.
type action func(ctx context.Context, a *App, c *client.Client, args []string) error

func (do action) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	return do(ctx, a, c, args)
}

// local is a verb that needs no server.
type local func(ctx context.Context, a *App, args []string) error

func (do local) run(ctx context.Context, a *App, _ *client.Client, args []string) error {
	return do(ctx, a, args)
}

// many is more arguments than there can be.
const many = 1 << 30

// verbs are those of nexus-rpc.
func verbs() []row {
	return []row{
		{use: "detect", short: "Report which service listens on the port", do: local(detect), without: withoutFlags{"it looks at a port of this machine and needs no key", []string{"server", "ca", "api-key"}}},
		{use: "list [FLAGS]", names: "agents.#.agent_id", start: true, of: api.ListAgents.Row(), do: action(list)},
		{use: "kinds", names: "kinds.#.kind", start: true, of: api.ListKinds.Row(), do: calls(api.ListKinds, nothing, kindsTable)},
		{use: "nodes", names: "nodes.#.node", of: api.ListNodes.Row(), do: calls(api.ListNodes, nothing, nodesTable)},
		{use: "drain [MACHINE] [FLAGS]", names: "node", most: 1, of: api.DrainNode.Row(), long: DrainHelp, do: new(drain)},
		{use: "label [MACHINE] [LABEL…]", names: "node", most: many, of: api.LabelNode.Row(), long: LabelHelp, do: action(label)},
		{use: "remove MACHINE [FLAGS]", names: "node", least: 1, most: 1, of: api.RemoveNode.Row(), long: RemoveHelp, do: new(remove)},
		{use: "create [AGENT] [FLAGS]", names: "agent_id", most: many, start: true, long: createHelp, of: api.CreateAgent.Row(), do: new(create)},
		{use: "stop AGENT", least: 1, most: 1, of: api.Shutdown.Row(), do: action(stop)},
		{use: "destroy AGENT", names: "agent_id", least: 1, most: 1, of: api.DestroyAgent.Row(), do: action(destroy)},
		{use: "send AGENT MESSAGE [FLAGS]", wakes: true, least: 2, most: 2, of: api.Send.Row(), long: sendHelp, do: new(send)},
		{use: "status AGENT", names: "[agent.agent_id,session.name]", least: 1, most: 1, short: "Describe an agent", do: action(status)},
		{use: "cancel [AGENT] REQUEST_ID", least: 1, most: 2, of: api.Cancel.Row(), long: cancelHelp, do: action(cancel)},
		{use: "approvals [AGENT]", names: "pending.#.request_id", most: 1, of: api.GetPermissions.Row(), short: "List the calls that wait for an approval, of all agents or of one", do: action(approvals)},
		{use: "allow [AGENT] REQUEST_ID [FLAGS]", least: 1, most: 2, short: "Allow a call that waits for an approval", do: new(allow)},
		{use: "deny [AGENT] REQUEST_ID [FLAGS]", least: 1, most: 2, short: "Deny a call that waits for an approval", do: new(deny)},
		{use: "plan FILE [FLAGS]", least: 1, most: 1, of: api.RunPlan.Row(), long: planHelp, do: new(plan)},
		{use: "shutdown", of: api.ShutdownServer.Row(), do: action(shutdown)},
		{use: "sessions [FLAGS]", names: "sessions.#.name", of: api.ListSessions.Row(), do: new(listSessions)},
		{use: "load [SESSION] [FLAGS]", names: "agent_id", most: 1, start: true, of: api.LoadSession.Row(), do: new(load)},
		{use: "save AGENT [SESSION]", names: "session_name", least: 1, most: 2, of: api.SaveSession.Row(), do: calls(api.SaveSession, toSave, tellSaved)},
		{use: "clone SESSION NAME", names: "dest_session", least: 2, most: 2, of: api.CloneSession.Row(), short: "Copy a session as it is now; the copy of an agent that runs, runs", do: action(clone)},
		{use: "rename SESSION NAME", names: "new_name", least: 2, most: 2, of: api.RenameSession.Row(), do: calls(api.RenameSession, toRename, tellRenamed)},
		{use: "delete SESSION", names: "session_name", least: 1, most: 1, of: api.DeleteSession.Row(), do: action(deleteSession)},
		{
			use: "import FILE…", names: "name", least: 1, most: many, short: "Save sessions of an earlier program, JSON files, under their own names",
			do: local(importFiles), without: noServer(),
		},
		{use: "compact AGENT [FLAGS]", wakes: true, least: 1, most: 1, of: api.Compact.Row(), do: new(compact)},
		{use: "undo AGENT [FLAGS]", wakes: true, least: 1, most: 1, of: api.Undo.Row(), do: new(undo)},
		{use: "model AGENT [MODEL]", wakes: true, names: "model", least: 1, most: 2, of: api.SetModel.Row(), short: "Show the agent's model, or change it from the next turn on", do: action(model)},
		{use: "cwd AGENT [DIR]", wakes: true, names: "[policy.cwd,cwd]", least: 1, most: 2, of: api.SetCwd.Row(), short: "Show the agent's working directory, or change it from the next turn on", do: action(cwd)},
		{
			use: "prompt AGENT [FILE] [FLAGS]", wakes: true, least: 1, most: 2, of: api.SetSystemPrompt.Row(), do: new(prompt),
			short: "Show the agent's system prompt, or make FILE it from the next turn on (- reads stdin)",
		},
		{
			use: "permissions AGENT [PRESET]", wakes: true, names: "preset", least: 1, most: 2, of: api.SetPermissions.Row(), do: action(permissions),
			short: "Show what the agent may do, or give it another preset at once",
		},
		{use: "models AGENT", wakes: true, names: "models.#.model_id", least: 1, most: 1, of: api.ListModels.Row(), do: shows(api.ListModels, api.None{}, tellModels)},
		{use: "jobs AGENT", wakes: true, names: "jobs.#.job_id", least: 1, most: 1, of: api.ListJobs.Row(), do: shows(api.ListJobs, api.None{}, tellJobs)},
		{use: "tools AGENT", wakes: true, names: "tools.#.name", least: 1, most: 1, of: api.ListTools.Row(), do: shows(api.ListTools, api.None{}, tellTools)},
		{use: "mcp AGENT [SERVER] [TARGET] [FLAGS]", wakes: true, names: "[servers.#.name,server.name]|@flatten", least: 1, most: 3, of: api.MCPListServers.Row(), short: "List the agent's MCP servers, or start or end one", long: mcpHelp, do: new(mcp)},
		{use: "messages AGENT [FLAGS]", wakes: true, least: 1, most: 1, of: api.GetMessages.Row(), do: new(messages)},
		{
			use: "events [AGENT] [FLAGS]", most: 1, do: new(events),
			short: "Print an agent's events, one JSON object a line, until it is destroyed; without AGENT those of all agents",
		},
		{use: "keys", names: "keys.#.key_id", of: api.ListKeys.Row(), do: calls(api.ListKeys, nothing, keysTable), verbs: []row{
			{use: "create [FLAGS]", of: api.CreateKey.Row(), do: new(createKey)},
			{use: "rotate [FLAGS]", of: api.RotateKey.Row(), do: new(rotateKey)},
			{use: "revoke KEY_ID", least: 1, most: 1, of: api.RevokeKey.Row(), do: action(revokeKey)},
		}},
		{use: "open [FLAGS]", start: true, short: "Open the server's page in a browser by a one-time code", do: new(openPage)},
		{
			use: "call METHOD [PARAMS] [FLAGS]", least: 1, most: 2, long: callHelp, do: new(call),
			short: "Call any method with parameters in JSON and print its result",
		},
		{use: "rpc [FLAGS]", start: true, short: "Speak JSON-RPC on stdin and stdout, a line each", long: rpcHelp, do: new(rpcLines), without: withoutFlags{"what it prints is JSON-RPC", []string{"output", "json"}}},
		{use: "version", short: "Print the version of the program", do: local(printVersion), without: noServer("home")},
	}
}

// Verb is a verb of nexus-rpc in a list of them.
type Verb struct {
	Args    string   // as in AGENT [FILE]
	Summary string   // one line
	Long    string   // more than that; "" for no more
	Flags   string   // a line each; "" for none
	Verbs   []string // its own, with their arguments
}

// Verbs are those of nexus-rpc, by their names.
func Verbs() map[string]Verb {
	all := map[string]Verb{}
	for _, r := range verbs() {
		name, args, _ := strings.Cut(r.use, " ")
		v := Verb{Args: strings.TrimSpace(strings.Replace(args, "[FLAGS]", "", 1)), Summary: cmp.Or(r.short, r.of.Summary), Long: r.long}
		if own, ok := r.do.(flagged); ok {
			flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
			own.flags(flags)
			v.Flags = strings.TrimRight(flags.FlagUsages(), "\n")
		}
		for _, below := range r.verbs {
			v.Verbs = append(v.Verbs, below.use)
		}
		all[name] = v
	}
	return all
}

// ParseVerb reads the flags of a verb of nexus-rpc and those of all verbs, and runs nothing: the set has the arguments between them. The error is
// that of a wrong flag, which the verb has, too, if it is run; the set is then without arguments.
func ParseVerb(name string, args []string) (*pflag.FlagSet, error) {
	a := New(Options{Name: "nexus-rpc"})
	cmd, _, err := a.root.Find([]string{name})
	if err != nil {
		return a.root.Flags(), err
	}
	cmd.InitDefaultHelpFlag()
	if err = cmd.ParseFlags(args); err != nil {
		return pflag.NewFlagSet(name, pflag.ContinueOnError), err
	}
	return cmd.Flags(), nil
}

// command is a row as cobra has it.
func (a *App) command(r row) *cobra.Command {
	_, alone := r.do.(local)
	cmd := Named(&cobra.Command{
		Use: r.use, Short: cmp.Or(r.short, r.of.Summary), Long: r.long, DisableFlagsInUseLine: !alone,
		Args: func(cmd *cobra.Command, args []string) error {
			if r.verbs != nil {
				return VerbsOnly(cmd, args)
			}
			err := Args(r.least, r.most)(cmd, args)
			if rules, ok := r.do.(checked); ok && err == nil {
				err = rules.check(cmd.Flags(), args)
			}
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if alone {
				return r.do.run(cmd.Context(), a, nil, args)
			}
			c, err := a.Reach(cmd.Context(), r.start)
			if err != nil {
				return err
			}
			defer c.Close()
			if r.wakes {
				a.tellWaking(cmd.Context(), c, args[0])
			}
			err = r.do.run(cmd.Context(), a, c, args)
			if client.KindOf(err) != api.KindNoQuorum { // which says that itself
				a.noteStale(c)
			}
			return err
		},
	}, r.names)
	Without(cmd, r.without.why, r.without.flags...)
	if r.start {
		a.StartFlag(cmd)
	}
	if own, ok := r.do.(flagged); ok {
		own.flags(cmd.Flags())
	}
	for _, sub := range r.verbs {
		cmd.AddCommand(a.command(sub))
	}
	return cmd
}

// calls is a verb that calls a method once: ask makes its parameters of the arguments,
// and tell writes its result for people.
func calls[P, R any](m api.Def[P, R], ask func([]string) P, tell func(*printer, R, []string) error) verb {
	return action(func(ctx context.Context, a *App, c *client.Client, args []string) error {
		result, err := client.Do(ctx, c, "", m, ask(args))
		switch {
		case err != nil:
			return err
		case a.Structured():
			return a.PrintValue(result)
		}
		return tell(a.printer, result, args)
	})
}

// nothing is asked of a method without parameters.
func nothing([]string) api.None { return api.None{} }

// optional is a flag whose parameter stays nil unless it is given.
type optional struct{ parameter **string }

func (optional) Type() string     { return "string" }
func (o optional) String() string { return protocol.Value(*o.parameter) }

func (o optional) Set(text string) error {
	*o.parameter = &text
	return nil
}

// optionalBool is optional for a parameter that is true or false.
type optionalBool struct{ parameter **bool }

func (optionalBool) Type() string     { return "bool" }
func (o optionalBool) String() string { return strconv.FormatBool(protocol.Value(*o.parameter)) }

func (o optionalBool) Set(text string) error {
	value, err := strconv.ParseBool(text)
	*o.parameter = &value
	return err
}
