package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// agentsTable writes what list_agents says.
func agentsTable(p *printer, agents api.ListAgentsResult, _ []string) error {
	if len(agents.Agents) == 0 {
		return p.Printf("no agents\n")
	}
	rows := [][]string{{"AGENT", "STATE", "PID", "MESSAGES", "APPROVALS", "RESTARTS", "MODEL", "CWD"}}
	for _, agent := range agents.Agents {
		rows = append(rows, []string{
			agent.AgentID, agent.State, orDash(agent.PID), fmt.Sprint(agent.MessageCount), fmt.Sprint(agent.PendingPermissions), fmt.Sprint(agent.Restarts),
			orDash(agent.Model), orDash(agent.Cwd),
		})
	}
	return p.Listing(rows)
}

// orDash is a value for a table, "-" for one that is missing or empty.
func orDash[T int | string](value *T) string {
	if value == nil {
		return "-"
	}
	return cmp.Or(fmt.Sprint(*value), "-")
}

// create is the verb that creates an agent.
type create struct {
	p                  api.CreateAgentParams
	trusted, sandboxed bool
}

func (v *create) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.trusted, "trusted", false, "the same as --preset trusted")
	f.BoolVar(&v.sandboxed, "sandboxed", false, "the same as --preset sandboxed")
	f.Var(optional{&v.p.Preset}, "preset", "permission level: trusted or sandboxed")
	f.Var(optional{&v.p.Model}, "model", "model, as ID or PROVIDER/ID")
	f.Var(optional{&v.p.Provider}, "provider", "provider of the model")
	f.Var(optional{&v.p.Cwd}, "cwd", "working directory (default: this one; a saved agent keeps its own)")
	f.Var(optional{&v.p.SystemPrompt}, "system", "system prompt")
	f.Var(optional{&v.p.Approvals}, "approvals", "how calls that need an approval are decided: ask (see approvals) or deny")
	f.Var(optional{&v.p.IfExists}, "if-exists", "if an agent of that name runs: fail (the default) or use it")
}

func (v *create) check(*pflag.FlagSet, []string) error {
	for preset, chosen := range map[string]bool{rights.Trusted: v.trusted, rights.Sandboxed: v.sandboxed} {
		if chosen && v.p.Preset != nil {
			return Usage("--preset, --trusted and --sandboxed exclude each other")
		}
		if chosen {
			v.p.Preset = &preset
		}
	}
	return absolute(v.p.Cwd)
}

func (v *create) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	if len(args) == 1 {
		v.p.AgentID = &args[0]
	}
	if err := api.Check(v.p); err != nil {
		return err
	}
	if v.p.Cwd == nil {
		here, err := workingDir()
		if err != nil {
			return err
		}
		v.p.DefaultCwd = &here
	}
	created, err := client.Do(ctx, c, "", api.CreateAgent, v.p)
	if client.KindOf(err) == api.KindAgentExists && v.p.IfExists == nil {
		return fmt.Errorf("%s: use it with --if-exists use, or destroy it first", err.Error())
	}
	switch {
	case err != nil:
		return err
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
	return a.ended(destroyed, destroyed.Success, fmt.Errorf("no agent %s", id), "destroyed %s\n", id)
}

const cancelHelp = "Cancel a send of AGENT that waits or runs; without AGENT, a run of a plan, by its name."

// cancel cancels a send, or a run where there is no agent.
func cancel(ctx context.Context, a *App, c *client.Client, args []string) error {
	if len(args) == 1 {
		args = []string{"", args[0]}
	}
	agent, id := args[0], args[1]
	cancelled, err := client.Do(ctx, c, agent, api.Cancel, api.CancelParams{RequestID: id})
	if err != nil {
		return err
	}
	missing := fmt.Errorf("nothing to cancel: request %s of %s is not known or has ended", id, agent)
	if agent == "" {
		missing = fmt.Errorf("nothing to cancel: the run %s is not known, or did not end by that", id)
	}
	if !cancelled.Cancelled && agent == "" {
		agents, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
		if err == nil && slices.ContainsFunc(agents.Agents, func(one api.AgentInfo) bool { return one.AgentID == id }) {
			missing = Usage("%s is an agent: name the send, too, by its REQUEST_ID (%s status %s shows that which runs)", id, a.self(), id)
		}
	}
	return a.ended(cancelled, cancelled.Cancelled, missing, "cancelled %s\n", id)
}

// shutdown returns once the server is gone, if it is one of our home.
func shutdown(ctx context.Context, a *App, c *client.Client, _ []string) error {
	home, err := a.Home()
	if err != nil {
		return err
	}
	gone := watchServer(home, a.Port)
	busy, _ := client.Do(ctx, c, "", api.ListAgents, api.None{}) // of the next call, the error is said
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
	a.tellWork(busy.Agents)
	if !gone.wait() {
		return a.say("the server is shutting down\n")
	}
	return a.say("the server has ended\n")
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
			tell("the server waits for an approval of %s: see %s approvals, or answer with %s deny %s", one.AgentID, a.self(), a.self(), request.RequestID)
		}
		switch {
		case one.RequestID != nil && len(one.Pending) == 0:
			tell("the server waits for a turn of %s: %s cancel %s %s ends it", one.AgentID, a.self(), one.AgentID, *one.RequestID)
		case one.RequestID == nil && one.Queued > 0:
			tell("the server waits for what is queued for %s", one.AgentID)
		}
	}
	if told > maxTold {
		a.note("the server waits for %d more: see %s list", told-maxTold, a.self())
	}
}
