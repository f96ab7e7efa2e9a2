package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// OnMachines reports whether agents are of machines of a cluster.
func OnMachines(agents []api.AgentInfo) bool {
	return slices.ContainsFunc(agents, func(a api.AgentInfo) bool { return a.Node != "" })
}

// list is the verb that lists the agents.
func list(ctx context.Context, a *App, c *client.Client, _ []string) error {
	agents, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	if err != nil {
		return err
	}
	a.NoteUnreached(agents.UnreachableNodes)
	if a.Structured() {
		return a.PrintValue(agents)
	}
	return agentsTable(a.printer, agents)
}

// agentsTable writes what list_agents says, on a cluster with the machine of each agent.
func agentsTable(p *printer, agents api.ListAgentsResult) error {
	if len(agents.Agents) == 0 {
		return p.Printf("no agents\n")
	}
	machines := OnMachines(agents.Agents)
	rows := [][]string{{"AGENT", "STATE", "PID", "MESSAGES", "APPROVALS", "RESTARTS", "MODEL", "CWD"}}
	for _, agent := range agents.Agents {
		rows = append(rows, []string{
			agent.AgentID, agent.State, orDash(agent.PID), fmt.Sprint(agent.MessageCount), fmt.Sprint(agent.PendingPermissions), fmt.Sprint(agent.Restarts),
			orDash(MadeBy(agent.Kind, agent.Model)), orDash(agent.Cwd),
		})
		if machines {
			rows[len(rows)-1] = slices.Insert(rows[len(rows)-1], 1, orDash(&agent.Node))
		}
	}
	if machines {
		rows[0] = slices.Insert(rows[0], 1, "NODE")
	}
	return p.Listing(rows)
}

// MadeBy is what answers for an agent: its model, after the kind of one of another make.
func MadeBy(kind, model *string) *string {
	if kind == nil {
		return model
	}
	return new(strings.TrimSuffix(*kind+"/"+protocol.Value(model), "/"))
}

// orDash is a value for a table, "-" for one that is missing or empty.
func orDash[T int | string](value *T) string {
	if value == nil {
		return "-"
	}
	return cmp.Or(fmt.Sprint(*value), "-")
}

// kindsTable writes what list_kinds says.
func kindsTable(p *printer, kinds api.ListKindsResult, _ []string) error {
	rows := [][]string{{"KIND", "PROTOCOL", "COMMAND", "HOME", "SANDBOX", "FOUND"}}
	for _, k := range kinds.Kinds {
		command := strings.Join(k.Command, " ")
		rows = append(rows, []string{k.Kind, k.Protocol, orDash(&command), k.Home, yesNo(k.Sandbox), orDash(k.Path)})
	}
	return p.Listing(rows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

const createHelp = `Start an agent, or continue the saved one of that name. With --kind it is an agent of another make: what
stands after -- is its program and the arguments, in the place of the kind's own.

  nexus-rpc create reviewer --kind acp --program-home user -- gemini --acp`

// create is the verb that creates an agent.
type create struct {
	p                  api.CreateAgentParams
	env                []string // NAME=VALUE
	place              api.Placement
	labels             []string // NAME=VALUE
	trusted, sandboxed bool
	yolo               bool
}

func (v *create) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.trusted, "trusted", false, "the same as --preset trusted")
	f.BoolVar(&v.sandboxed, "sandboxed", false, "the same as --preset sandboxed")
	f.BoolVar(&v.yolo, "yolo", false, "the same as --preset yolo, which asks for nothing, where the server's configuration allows it (allow_yolo)")
	f.Var(optional{&v.p.Preset}, "preset", "permission level: trusted, sandboxed, or one of the configuration")
	f.Var(optional{&v.p.Model}, "model", "model, as ID or PROVIDER/ID")
	f.Var(optional{&v.p.Provider}, "provider", "provider of the model")
	f.Var(optional{&v.p.Cwd}, "cwd", "working directory (default: this one; a saved agent keeps its own)")
	f.Var(optional{&v.p.SystemPrompt}, "system", "system prompt")
	f.Var(optional{&v.p.Approvals}, "approvals", "how calls that need an approval are decided: ask (see approvals) or deny")
	f.Var(optional{&v.p.CwdLost}, "cwd-lost", "if its directory is lost with a machine of a cluster: wait (the default) for the machine, or go on in a fresh one elsewhere")
	f.Var(optional{&v.place.Node}, "node", "machine of the cluster that is to have a new agent (default: the one that is asked)")
	f.StringArrayVar(&v.labels, "label", nil, "`NAME=VALUE` that the machine has which is to have a new agent; may be repeated")
	f.Var(optional{&v.place.Near}, "near", "agent, or saved session, whose machine is to have a new agent")
	f.Var(optional{&v.p.Kind}, "kind", "kind of an agent of another make (see kinds); what follows -- is its program")
	f.Var(optional{&v.p.Home}, "program-home", "what such a program finds as HOME: own or user")
	f.Var(optionalBool{&v.p.Sandbox}, "sandbox", "whether the kernel confines such a program: true or false")
	f.Lookup("sandbox").NoOptDefVal = "true"
	f.Var(optional{&v.p.Models}, "models", "provider whose models such a program reaches through the server, without a key")
	f.StringArrayVar(&v.env, "env", nil, "variable `NAME=VALUE` for the agent's programs, or NAME for the value that it has here; may be repeated")
	f.Var(optional{&v.p.IfExists}, "if-exists", "if an agent of that name runs: fail (the default) or use it")
	for _, preset := range []string{"trusted", "sandboxed", "yolo"} {
		Sets(f, preset, "preset")
	}
	Sets(f, "system", "system_prompt")
	Sets(f, "node", "place.node")
	Sets(f, "label", "place.labels")
	Sets(f, "near", "place.near")
	Sets(f, "program-home", "home")
}

func (v *create) check(f *pflag.FlagSet, args []string) error {
	if err := v.checkProgram(f.ArgsLenAtDash(), args); err != nil {
		return err
	}
	if err := v.checkPlace(); err != nil {
		return err
	}
	for preset, chosen := range map[string]bool{rights.Trusted: v.trusted, rights.Sandboxed: v.sandboxed, rights.Yolo: v.yolo} {
		if chosen && v.p.Preset != nil {
			return Usage("--preset, --trusted, --sandboxed and --yolo exclude each other")
		}
		if chosen {
			v.p.Preset = &preset
		}
	}
	return absolute(v.p.Cwd)
}

// checkPlace takes what says which machine is to have the agent.
func (v *create) checkPlace() error {
	labels := map[string]string{}
	for _, label := range v.labels {
		name, value, ok := strings.Cut(label, "=")
		if !ok {
			return Usage("--label %s: want NAME=VALUE", label)
		}
		labels[name] = value
	}
	if len(labels) > 0 {
		v.place.Labels = &labels
	}
	if v.place != (api.Placement{}) {
		v.p.Place = &v.place
	}
	return nil
}

// checkProgram takes what stands after --, and the variables. dash is how many arguments stand before
// it, -1 without it.
func (v *create) checkProgram(dash int, args []string) error {
	if dash < 0 {
		dash = len(args)
	}
	switch {
	case dash > 1:
		return Usage("want one AGENT, have %d", dash)
	case len(args) > dash && v.p.Kind == nil:
		return Usage("a program after -- is for agents of other makes: name their --kind")
	case len(args) > dash:
		v.p.Command = new(args[dash:])
	}
	if dash == 1 {
		v.p.AgentID = &args[0]
	}
	if len(v.env) == 0 {
		return nil
	}
	env := map[string]string{}
	for _, pair := range v.env {
		name, value, given := strings.Cut(pair, "=")
		if !given {
			if value, given = os.LookupEnv(name); !given {
				return Usage("--env %s: there is no such variable here", name)
			}
		}
		env[name] = value
	}
	v.p.Env = &env
	return nil
}

func (v *create) run(ctx context.Context, a *App, c *client.Client, _ []string) error {
	if err := api.Check(v.p); err != nil {
		return err
	}
	if v.p.Cwd == nil {
		here, err := Absolute(a.Cwd)
		if err != nil {
			return err
		}
		v.p.DefaultCwd = &here
	}
	created, err := client.Do(ctx, c, "", api.CreateAgent, v.p)
	if client.KindOf(err) == api.KindAgentExists && v.p.IfExists == nil {
		return fmt.Errorf("%s: use it with --if-exists use, or destroy it first", err.Error())
	}
	if err != nil {
		return err
	}
	a.Brought = &created
	switch {
	case a.Structured():
		return a.PrintValue(created)
	case created.Existing:
		return a.Printf("%s is there (%s)\n", created.AgentID, Counted(protocol.Value(created.MessageCount), "message"))
	case created.Restored:
		return a.tellContinued(created.AgentID, protocol.Value(created.MessageCount), created.NarrowedFrom)
	}
	return a.Printf("created %s\n", created.AgentID)
}

// tellContinued says that an agent goes on with its saved session.
func (p *printer) tellContinued(agent string, messages uint64, narrowedFrom string) error {
	note := ""
	if narrowedFrom != "" {
		note = ", trusted: " + narrowedFrom + " cannot be granted over RPC"
	}
	return p.Printf("continued %s (%s%s)\n", agent, Counted(messages, "message"), note)
}

func workingDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory, for want of --cwd: %w", err)
	}
	return dir, checkDir(dir)
}

// Absolute is the absolute path of a directory; "" is the one that we are in.
func Absolute(dir string) (string, error) {
	if dir == "" {
		return workingDir()
	}
	return dir, absolute(&dir)
}

func checkDir(path string) error {
	if !utf8.ValidString(path) {
		return Usage("the path of the directory %q is not UTF-8: name another directory by --cwd", path)
	}
	return nil
}

// absolute makes a path given on the command line one that the server can use.
func absolute(path *string) error {
	if path == nil || *path == "" {
		return nil
	}
	abs, err := filepath.Abs(*path)
	if *path = abs; err == nil {
		err = checkDir(abs)
	}
	return err
}

// stop stops an agent's process. An agent that does not run is stopped already.
func stop(ctx context.Context, a *App, c *client.Client, args []string) error {
	found, err := findAgent(ctx, c, args[0])
	if err != nil && client.KindOf(err) != api.KindNotPermitted { // a key of the agent lists no others
		return err
	}
	said := "stopped %s: the next request to it starts it again\n"
	if found.Session != nil || found.Agent != nil && found.Agent.State == "stopped" {
		said = "%s does not run: the next request to it starts it\n"
	}
	stopped, err := client.Do(ctx, c, args[0], api.Shutdown, api.None{})
	return a.done(stopped, err, said, args[0])
}

func destroy(ctx context.Context, a *App, c *client.Client, args []string) error {
	id := args[0]
	destroyed, err := client.Do(ctx, c, "", api.DestroyAgent, api.AgentIDParams{AgentID: id})
	if err != nil {
		return err
	}
	var missing error
	if !destroyed.Success {
		missing = missingNow(ctx, c, fmt.Errorf("no agent %s", id))
	}
	return a.ended(destroyed, destroyed.Success, missing, "destroyed %s\n", id)
}

// shutdown returns once the server is gone, if it is one of our home.
func shutdown(ctx context.Context, a *App, c *client.Client, _ []string) error {
	home, err := a.Home()
	if err != nil {
		return err
	}
	if err := a.oneServer("shutdown"); err != nil {
		return err
	}
	gone := watch{}
	if a.Servers() == "" {
		gone = watchServer(home, a.Port)
	}
	busy := itsOwn(ctx, c)
	result, err := client.Do(ctx, c, "", api.ShutdownServer, api.None{})
	if _, broke := errors.AsType[*client.ConnError](err); broke && !errors.Is(err, client.ErrNoServer) {
		result, err = client.Do(ctx, c, "", api.ShutdownServer, api.None{}) // it may have ended, as somebody else asked for
	}
	switch {
	case client.KindOf(err) == api.KindServerDraining:
		result.Success = true // it ends, as was asked before
		a.note("the server is shutting down already")
	case errors.Is(err, client.ErrNoServer):
		result.Success = true // it has ended since it was found
	case err != nil:
		gone.forget()
		return err
	}
	if a.Structured() {
		if err := a.PrintValue(result); err != nil {
			return err
		}
	}
	a.tellWork(busy)
	if !gone.wait() {
		return a.say("the server is shutting down\n")
	}
	return a.say("the server has ended\n")
}

// itsOwn are the agents that the server itself has, of those of all machines of its cluster; none if that is not to be had.
func itsOwn(ctx context.Context, c *client.Client) []api.AgentInfo {
	listed, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	elsewhere := func(one api.AgentInfo) bool { return one.Node != "" }
	if err != nil || !slices.ContainsFunc(listed.Agents, elsewhere) {
		return listed.Agents
	}
	nodes, err := client.Do(ctx, c, "", api.ListNodes, api.None{})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(listed.Agents, func(one api.AgentInfo) bool { return one.Node != nodes.Node })
}

// maxTold is how many lines tell what a server waits for.
const maxTold = 10

// tellWork says for what a server that ends waits, and how to end that.
func (a *App) tellWork(agents []api.AgentInfo) {
	told := 0
	tell := func(format string, args ...any) {
		if told++; told <= maxTold {
			a.note(format, args...)
		}
	}
	for _, one := range agents {
		for _, request := range one.Pending {
			tell("the server waits for an approval of %s: see %s, or answer with %s", one.AgentID, a.Call("approvals"), a.Call("deny "+request.RequestID))
		}
		switch {
		case one.RequestID != nil && len(one.Pending) == 0:
			tell("the server waits for a turn of %s: %s ends it", one.AgentID, a.Call("cancel "+one.AgentID+" "+*one.RequestID))
		case one.RequestID == nil && one.Queued > 0:
			tell("the server waits for what is queued for %s", one.AgentID)
		}
	}
	if told > maxTold {
		a.note("the server waits for %d more: see %s", told-maxTold, a.Call("list"))
	}
}
