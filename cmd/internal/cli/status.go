package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// agentStatus is what status prints with --json. A member that is nil is missing.
type agentStatus struct {
	Agent   *api.AgentInfo        `json:"agent,omitzero"`   // if the server has the agent
	Session *api.SavedSession     `json:"session,omitzero"` // else, if it is saved
	Tokens  *api.GetTokensResult  `json:"tokens,omitzero"`  // if its process answers
	Context *api.GetContextResult `json:"context,omitzero"` // likewise
}

// status tells what the server knows of an agent, and asks its process for more if one
// is at work. It starts nothing. By a key for the agent, which lists none, it asks the process
// alone, which starts one that is saved.
func status(ctx context.Context, a *App, c *client.Client, args []string) error {
	s, err := findAgent(ctx, c, args[0])
	var silent error // why its process did not tell more
	switch {
	case client.KindOf(err) == api.KindNotPermitted:
		if err := s.ask(ctx, c, args[0]); err != nil {
			return err
		}
	case err != nil:
		return err
	case s.Agent != nil && (s.Agent.State == "ready" || s.Agent.State == "busy"):
		asking, stop := context.WithTimeoutCause(ctx, answerPatience, fmt.Errorf("the process has not answered within %v, so this is what the server knows of it", answerPatience))
		if silent = s.ask(asking, c, args[0]); silent != nil && asking.Err() != nil && ctx.Err() == nil {
			silent = context.Cause(asking)
		}
		stop()
	}
	if a.Structured() {
		return errors.Join(a.PrintValue(s), silent)
	}
	return errors.Join(a.table(s.rows(args[0])), silent)
}

// answerPatience bounds the wait for a process that may stand still: what the server knows of it waits behind that.
const answerPatience = 3 * time.Second

// findAgent is an agent of the server, or one that is saved.
func findAgent(ctx context.Context, c *client.Client, id string) (s agentStatus, err error) {
	if err := api.CheckAgentID(id); err != nil {
		return s, err
	}
	agents, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	if err != nil {
		return s, err
	}
	for _, agent := range agents.Agents {
		if agent.AgentID == id {
			return agentStatus{Agent: &agent}, nil
		}
	}
	unreached := agents.UnreachableNodes
	saved, err := savedSessions(ctx, c, api.ListSessionsParams{IncludeTemp: new(true)}, 0, 0)
	if err != nil {
		return s, err
	}
	for _, session := range saved.Sessions {
		if session.Name == id {
			return agentStatus{Session: &session}, nil
		}
	}
	for _, machine := range saved.UnreachableNodes {
		if !slices.Contains(unreached, machine) {
			unreached = append(unreached, machine)
		}
	}
	return s, MissingAt(c, noAgentError(id), unreached)
}

// tellWaking tells a person that an agent goes on with its saved session because somebody asks for it.
func (a *App) tellWaking(ctx context.Context, c *client.Client, id string) {
	if !a.Slash && !IsTerminal(a.Stderr) {
		return
	}
	found, err := findAgent(ctx, c, id)
	if err == nil && found.Session != nil && found.Session.Damaged == "" {
		a.note("%s is restored from its saved session (%s)", id, Counted(found.Session.MessageCount, "message"))
	}
}

// noAgentError is the name of an agent that neither runs nor is saved.
type noAgentError string

func (e noAgentError) Error() string {
	return fmt.Sprintf("no agent %s runs, and none is saved", string(e))
}

// ask asks the agent's process.
func (s *agentStatus) ask(ctx context.Context, c *client.Client, id string) error {
	about, err := client.Do(ctx, c, id, api.GetContext, api.None{})
	if err != nil {
		return err
	}
	tokens, err := client.Do(ctx, c, id, api.GetTokens, api.None{})
	if err != nil {
		return err
	}
	s.Context, s.Tokens = &about, &tokens
	return nil
}

func (s *agentStatus) rows(id string) [][]string {
	if saved := s.Session; saved != nil {
		state := "saved: the next request to it starts it"
		if saved.Damaged != "" {
			state = "saved, but damaged: it does not start"
		}
		return [][]string{
			{"agent", id},
			{"state", state},
			{"model", orDash(MadeBy(saved.Kind, saved.Model))},
			{"preset", orDash(saved.PermissionLevel)},
			{"cwd", orDash(saved.Cwd)},
			{"messages", strconv.FormatUint(saved.MessageCount, 10)},
			{"damaged", cmp.Or(saved.Damaged, "-")},
		}
	}
	agent := cmp.Or(s.Agent, &api.AgentInfo{})
	model, preset, cwd, messages, tokens := orDash(MadeBy(agent.Kind, agent.Model)), orDash(agent.PermissionLevel), orDash(agent.Cwd), agent.MessageCount, "-"
	if s.Context != nil { // what the server has of a process that has just started may be behind
		model = s.Context.Provider + "/" + s.Context.Model
		preset, cwd, messages = s.Context.PermissionLevel, s.Context.Cwd, s.Context.MessageCount
		tokens = fmt.Sprintf("%d of %d (system %d, tools %d, messages %d)",
			s.Tokens.Total, s.Tokens.Budget, s.Tokens.System, s.Tokens.Tools, s.Tokens.Messages)
	}
	rows := [][]string{
		{"agent", id},
		{"model", model},
		{"preset", preset},
		{"cwd", cwd},
		{"messages", strconv.FormatUint(messages, 10)},
		{"tokens", tokens},
	}
	if s.Agent == nil {
		return rows
	}
	rows = append(slices.Insert(rows, 1, [][]string{
		{"state", agent.State},
		{"process", fmt.Sprintf("%s, incarnation %d, %s", orDash(agent.PID), agent.Incarnation, Counted(agent.Restarts, "restart"))},
	}...), [][]string{
		{"running", orDash(agent.RequestID)},
		{"queued", strconv.Itoa(agent.Queued)},
		{"approvals", strconv.Itoa(agent.PendingPermissions)},
		{"last error", orDash(agent.LastError)},
	}...)
	for _, id := range agent.Waiting {
		rows = append(rows, []string{"in the queue", id})
	}
	for _, request := range agent.Pending {
		rows = append(rows, []string{"waits", request.RequestID + " " + request.ToolName + ": " + request.Summary})
	}
	return rows
}
