package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// completePatience bounds the work for one press of the Tab key.
const completePatience = time.Second

// flagValues are what flags take, as the usage of a verb has it for an argument.
var flagValues = map[string]string{
	"agent": "AGENT", "agents": "AGENT", "model": "MODEL", "preset": "PRESET", "provider": "PROVIDER", "session": "SESSION", "types": "TYPE",
	"near": "AGENT", "cwd": "DIR", "home": "DIR", "log-dir": "DIR", "output": "table|json|yaml|name",
	"when-busy": "queue|reject|steer", "on-crash": "fail|retry", "approvals": "ask|deny", "cwd-lost": "wait|fresh", "if-exists": "fail|use",
}

// valuesOf is the annotation of a flag with the values that it may have.
const valuesOf = "values"

// OneOf has a shell learn the values that a flag of cmd may have.
func OneOf(cmd *cobra.Command, flag string, values []string) {
	_ = cmd.Flags().SetAnnotation(flag, valuesOf, values) // it fails where there is none
}

// choice is a name that a word may become, and a word about it.
type choice struct{ name, about string }

// completing reports whether a command line is a shell's, which asks how a word may end.
func completing(args []string) bool { return len(args) > 0 && strings.HasPrefix(args[0], "__complete") }

// completes has a shell learn what the arguments and flags of cmd, and of all below it, may be.
func (a *App) completes(cmd *cobra.Command) {
	register := func(f *pflag.Flag) {
		what := flagValues[f.Name]
		if values := f.Annotations[valuesOf]; values != nil {
			what = strings.Join(values, "|")
		}
		if what != "" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				return a.complete(cmd, what, args, typed)
			}) // it fails where there is one
		}
	}
	cmd.LocalFlags().VisitAll(register)
	if !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return a.complete(cmd, nextArgument(cmd, len(args)), args, typed)
		}
	}
	for _, verb := range cmd.Commands() {
		a.completes(verb)
	}
}

// nextArgument is how the usage of cmd names the argument behind so many; "" for none. Of an
// optional one before others the shell is offered those: they say which is meant.
func nextArgument(cmd *cobra.Command, given int) string {
	names := slices.DeleteFunc(strings.Fields(cmd.Use)[1:], func(word string) bool { return word == "[FLAGS]" })
	if len(names) > 1 && names[0][0] == '[' && given == 0 {
		given = 1
	}
	if given >= len(names) && len(names) > 0 && strings.HasSuffix(names[len(names)-1], "…") {
		given = len(names) - 1
	}
	if given >= len(names) {
		return ""
	}
	return strings.Trim(names[given], "[]…")
}

// complete is what a word that begins with typed may become, as cobra has it.
func (a *App) complete(cmd *cobra.Command, what string, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch what {
	case "FILE":
		return nil, cobra.ShellCompDirectiveDefault
	case "DIR":
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completePatience)
	defer cancel()
	before := typed[:strings.LastIndexByte(typed, ',')+1] // of a list
	var fitting []string
	known := map[string]bool{}
	for _, one := range a.choices(ctx, cmd, what, args) {
		if strings.HasPrefix(one.name, typed[len(before):]) && !known[one.name] {
			known[one.name] = true
			fitting = append(fitting, strings.TrimRight(before+line(one.name)+"\t"+line(one.about), "\t"))
		}
	}
	return fitting, cobra.ShellCompDirectiveNoFileComp
}

// choices are all that an argument, or the value of a flag, may be, as far as that is known.
func (a *App) choices(ctx context.Context, cmd *cobra.Command, what string, args []string) (all []choice) {
	switch what {
	case "METHOD":
		for _, m := range api.Methods {
			all = append(all, choice{m.Name, m.Summary})
		}
		return all
	case "TYPE":
		for _, row := range api.EventTypes() {
			all = append(all, choice{name: row.Event.Name()})
		}
		return all
	case "PRESET", "PROVIDER":
		return a.configured(what)
	case "AGENT", "SESSION", "MODEL", "REQUEST_ID", "KEY_ID", "SERVER":
		all = a.configured(what)
		if c, err := a.Connect(ctx, false); err == nil {
			defer c.Close()
			all = append(all, live(ctx, c, cmd.Name(), what, args)...)
		}
		return all
	}
	if strings.Contains(what, "|") {
		return names(strings.Split(what, "|"))
	}
	return nil
}

func names(list []string) (all []choice) {
	for _, name := range list {
		all = append(all, choice{name: name})
	}
	return all
}

// configured are the names that the configuration has, whether a server runs or not.
func (a *App) configured(what string) (all []choice) {
	if what != "PRESET" && what != "PROVIDER" && what != "MODEL" {
		return nil
	}
	cfg, err := a.LoadConfig("")
	if err != nil {
		return nil
	}
	switch what {
	case "PRESET":
		return names(append([]string{rights.Trusted, rights.Sandboxed}, slices.Sorted(maps.Keys(cfg.Presets))...))
	case "PROVIDER":
		return names(cfg.Models.Names())
	}
	for _, name := range cfg.Models.Names() {
		p, _ := cfg.Models.Provider(name)
		for _, m := range p.Models {
			all = append(all, choice{name + "/" + m.ID, m.Name})
		}
	}
	return all
}

// live are the names that the server has. It starts no agent, and what is not answered is not offered.
func live(ctx context.Context, c *client.Client, verb, what string, args []string) (all []choice) {
	if what == "KEY_ID" {
		keys, _ := client.Do(ctx, c, "", api.ListKeys, api.None{})
		for _, key := range keys.Keys {
			all = append(all, choice{key.KeyID, protocol.Value(key.Name)})
		}
		return all
	}
	agents, _ := client.Do(ctx, c, "", api.ListAgents, api.None{})
	for _, one := range agents.Agents {
		switch {
		case what == "AGENT":
			all = append(all, choice{one.AgentID, one.State})
		case what == "REQUEST_ID" && verb == "cancel" && one.RequestID != nil:
			all = append(all, choice{*one.RequestID, "of " + one.AgentID})
		case what == "REQUEST_ID" && verb != "cancel":
			for _, request := range one.Pending {
				all = append(all, choice{request.RequestID, one.AgentID + ": " + firstOf(request.Summary, 60)})
			}
		}
	}
	if what == "SESSION" || what == "AGENT" {
		saved, _ := client.Do(ctx, c, "", api.ListSessions, api.ListSessionsParams{Limit: new(uint64(api.MaxSessions))})
		for _, s := range saved.Sessions {
			all = append(all, choice{s.Name, "saved, " + Counted(s.MessageCount, "message")})
		}
	}
	return append(all, offered(ctx, c, what, args, agents.Agents)...)
}

// offered are the names that the process of an agent has: of the first of args, or of another one
// if that does not run.
func offered(ctx context.Context, c *client.Client, what string, args []string, agents []api.AgentInfo) (all []choice) {
	agents = slices.DeleteFunc(agents, func(one api.AgentInfo) bool { return one.State != "ready" && one.State != "busy" })
	if len(agents) == 0 {
		return nil
	}
	of := agents[0].AgentID
	if len(args) > 0 && slices.ContainsFunc(agents, func(one api.AgentInfo) bool { return one.AgentID == args[0] }) {
		of = args[0]
	}
	switch what {
	case "MODEL":
		models, _ := client.Do(ctx, c, of, api.ListModels, api.None{})
		for _, m := range models.Models {
			all = append(all, choice{m.Provider + "/" + m.ModelID, m.ModelName})
		}
	case "SERVER":
		servers, _ := client.Do(ctx, c, of, api.MCPListServers, api.None{})
		for _, s := range servers.Servers {
			all = append(all, choice{s.Name, string(s.State)})
		}
	}
	return all
}
