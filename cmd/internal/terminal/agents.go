package terminal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
)

// found is what there is of an agent.
type found struct {
	running, saved bool
	messages       uint64   // of the saved one
	unreached      []string // machines of a cluster that may have it, if it was not found
}

// meet takes an agent that is given work: one that is saved comes back for it.
func (c *chat) meet(name string) {
	f, _ := c.find(name) // where it fails, nobody is brought
	c.met.add(name, f.saved)
}

// find looks for an agent.
func (c *chat) find(name string) (f found, err error) {
	if err := api.CheckAgentID(name); err != nil {
		return f, err
	}
	all, err := client.Do(c.ctx, c.c, "", api.ListAgents, api.None{})
	if err != nil {
		return f, err
	}
	if slices.ContainsFunc(all.Agents, func(a api.AgentInfo) bool { return a.AgentID == name }) {
		return found{running: true}, nil
	}
	saved, err := client.Do(c.ctx, c.c, "", api.ListSessions, api.ListSessionsParams{Limit: new(uint64(api.MaxSessions))})
	for _, s := range saved.Sessions {
		if s.Name == name {
			return found{saved: true, messages: s.MessageCount}, nil
		}
	}
	return found{unreached: all.UnreachableNodes}, err
}

// missing is what is said of an agent that was not found.
func (f found) missing(text string) string { return cli.Missing(errors.New(text), f.unreached).Error() }

// restore starts a saved agent, or a new one. There is somebody who answers for approvals.
func (c *chat) restore(name, cwd string, preset *string) error {
	p := api.CreateAgentParams{AgentID: &name, Preset: preset, DefaultCwd: &cwd, Approvals: new("ask")}
	_, err := c.create(p)
	return err
}

// create creates an agent, or restores it, also if the talk ends meanwhile.
func (c *chat) create(p api.CreateAgentParams) (agent string, err error) {
	if err := c.met.begin(); err != nil {
		return "", err
	}
	made, err := client.Do(context.WithoutCancel(c.ctx), c.c, "", api.CreateAgent, p)
	c.met.end(made.AgentID, true, err)
	return made.AgentID, err
}

// load brings the agent of a session, also if the talk ends meanwhile.
func (c *chat) load(p api.LoadSessionParams) (agent string, err error) {
	if err := c.met.begin(); err != nil {
		return "", err
	}
	loaded, err := client.Do(context.WithoutCancel(c.ctx), c.c, "", api.LoadSession, p)
	c.met.end(loaded.AgentID, loaded.Restored, err)
	return loaded.AgentID, err
}

// going is what is done with an agent that was found or made.
type going func(agent string, created bool) work

// toAgent goes to an agent: one that runs, a saved one, or a new one.
func toAgent(t *talk, args []string) ([]string, work) {
	var preset *string
	name := ""
	for _, arg := range args {
		switch arg {
		case "--trusted", "--sandboxed", "--yolo":
			if preset != nil && "--"+*preset != arg {
				return []string{t.look().problem("--trusted, --sandboxed and --yolo exclude each other")}, nil
			}
			preset = new(strings.TrimPrefix(arg, "--"))
		default:
			if name != "" || strings.HasPrefix(arg, "-") {
				name = "/"
				continue
			}
			name = arg
		}
	}
	switch {
	case name == "/", name == "" && preset != nil:
		return []string{t.look().problem("usage: /agent [NAME] [--trusted|--sandboxed|--yolo]")}, nil
	case name == "":
		return runVerb(t, standing, "status", nil)
	}
	return nil, findAgent(t, name, preset, t.begin)
}

// findAgent goes on with an agent that runs; else it asks whether the saved one, or a new one, is meant.
func findAgent(t *talk, name string, preset *string, then going) work {
	return func() any {
		f, err := t.chat.find(name)
		switch {
		case err != nil:
			return said{t.look().problem(cli.Harmless(err.Error(), true))}
		case f.running && preset != nil:
			return asks{text: fmt.Sprintf("%s runs already, and stays as it is: /permissions changes that. go to it? y/n", name), yes: then(name, false)}
		case f.running:
			return then(name, false)()
		}
		text := f.missing("there is no agent "+name) + ": create it? y/n"
		if f.saved {
			text = fmt.Sprintf("%s is saved (%s): restore it? y/n", name, cli.Counted(f.messages, "message"))
		}
		return asks{text: text, yes: func() any {
			if err := t.chat.restore(name, t.o.Cwd, preset); err != nil {
				return said{t.look().problem(cli.Harmless(err.Error(), true))}
			}
			return then(name, !f.saved)()
		}}
	}
}

// toSession goes to the agent of a saved session.
func toSession(t *talk, args []string) ([]string, work) {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return []string{t.look().problem("usage: /load SESSION")}, nil
	}
	name := args[0]
	return nil, func() any {
		f, err := t.chat.find(name)
		if err == nil && f.saved {
			err = t.chat.restore(name, t.o.Cwd, nil)
		}
		switch {
		case err != nil:
			return said{t.look().problem(cli.Harmless(err.Error(), true))}
		case !f.running && !f.saved:
			return said{t.look().problem(cli.Harmless(f.missing("no session "+name+" is saved: /sessions lists them"), true))}
		}
		return t.begin(name, false)()
	}
}
