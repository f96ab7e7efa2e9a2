package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

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
// is at work. It starts nothing.
func status(ctx context.Context, a *App, c *client.Client, args []string) error {
	s, err := findAgent(ctx, c, args[0])
	if err != nil {
		return err
	}
	var silent error // why its process did not tell more
	if s.Agent != nil && (s.Agent.State == "ready" || s.Agent.State == "busy") {
		silent = s.ask(ctx, c)
	}
	if a.json {
		return errors.Join(a.PrintJSON(s), silent)
	}
	return errors.Join(a.table(s.rows(args[0])), silent)
}

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
	saved, err := savedSessions(ctx, c, api.ListSessionsParams{IncludeTemp: new(true)}, 0, 0)
	if err != nil {
		return s, err
	}
	for _, session := range saved.Sessions {
		if session.Name == id {
			return agentStatus{Session: &session}, nil
		}
	}
	return s, noAgentError(id)
}

// noAgentError is the name of an agent that neither runs nor is saved.
type noAgentError string

func (e noAgentError) Error() string {
	return fmt.Sprintf("no agent %s runs, and none is saved", string(e))
}

// ask asks the agent's process.
func (s *agentStatus) ask(ctx context.Context, c *client.Client) error {
	about, err := client.Do(ctx, c, s.Agent.AgentID, api.GetContext, api.None{})
	if err != nil {
		return err
	}
	tokens, err := client.Do(ctx, c, s.Agent.AgentID, api.GetTokens, api.None{})
	if err != nil {
		return err
	}
	s.Context, s.Tokens = &about, &tokens
	return nil
}

func (s *agentStatus) rows(id string) [][]string {
	if saved := s.Session; saved != nil {
		return [][]string{
			{"agent", id},
			{"state", "saved: the next request to it starts it"},
			{"model", orDash(saved.Model)},
			{"preset", orDash(saved.PermissionLevel)},
			{"cwd", orDash(saved.Cwd)},
			{"messages", strconv.FormatUint(saved.MessageCount, 10)},
			{"damaged", cmp.Or(saved.Damaged, "-")},
		}
	}
	agent := s.Agent
	model, tokens := orDash(agent.Model), "-"
	if s.Context != nil {
		model = s.Context.Provider + "/" + s.Context.Model
		tokens = fmt.Sprintf("%d of %d (system %d, tools %d, messages %d)",
			s.Tokens.Total, s.Tokens.Budget, s.Tokens.System, s.Tokens.Tools, s.Tokens.Messages)
	}
	return [][]string{
		{"agent", id},
		{"state", agent.State},
		{"process", fmt.Sprintf("%s, incarnation %d, %d restarts", orDash(agent.PID), agent.Incarnation, agent.Restarts)},
		{"model", model},
		{"preset", orDash(agent.PermissionLevel)},
		{"cwd", orDash(agent.Cwd)},
		{"messages", strconv.FormatUint(agent.MessageCount, 10)},
		{"tokens", tokens},
		{"running", orDash(agent.RequestID)},
		{"queued", strconv.Itoa(agent.Queued)},
		{"approvals", strconv.Itoa(agent.PendingPermissions)},
		{"last error", orDash(agent.LastError)},
	}
}
