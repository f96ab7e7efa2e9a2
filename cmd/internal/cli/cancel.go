package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

const cancelHelp = "Cancel a send of AGENT that waits or runs; without AGENT, a run of a plan, by its name."

// cancel cancels a send, or a run where there is no agent. The server answers alike for what it cancels and for what was cancelled
// before: which of the two it was is looked up first.
func cancel(ctx context.Context, a *App, c *client.Client, args []string) error {
	if len(args) == 1 {
		args = []string{"", args[0]}
	}
	agent, id := args[0], args[1]
	said := ""
	if !a.Structured() {
		said = tellCancelled(ctx, c, agent, id)
	}
	cancelled, err := client.Do(ctx, c, agent, api.Cancel, api.CancelParams{RequestID: id})
	if err != nil {
		return err
	}
	missing := fmt.Errorf("nothing to cancel: request %s of %s is not known or has ended", id, agent)
	if agent == "" {
		missing = fmt.Errorf("nothing to cancel: the run %s is not known or has ended", id)
	}
	if !cancelled.Cancelled && agent == "" {
		agents, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
		if err == nil && slices.ContainsFunc(agents.Agents, func(one api.AgentInfo) bool { return one.AgentID == id }) {
			missing = Usage("%s is an agent: name the send, too, by its REQUEST_ID (%s shows that which runs)", id, a.Call("status "+id))
		}
	}
	return a.ended(cancelled, cancelled.Cancelled, missing, said, id)
}

// What is said of something that has ended as cancelled.
const (
	cancelledNow    = "cancelled %s\n"
	cancelledBefore = "%s was cancelled already\n"
	isCancelled     = "%s is cancelled\n" // now or before
)

// lookPatience bounds how long a cancel waits for what it looks up before.
const lookPatience = time.Second

// tellCancelled is what is to be said if a send, or a run where there is no agent, turns out to have ended as cancelled, by what is under way now.
func tellCancelled(ctx context.Context, c *client.Client, agent, id string) string {
	ctx, stop := context.WithTimeout(ctx, lookPatience)
	defer stop()
	if agent == "" {
		run, err := client.Do(ctx, c, "", api.GetRun, api.GetRunParams{PlanRunID: id})
		switch {
		case err == nil && run.Status == api.PlanRunning:
			return cancelledNow
		case err == nil && run.Status == api.PlanCancelled:
			return cancelledBefore
		}
		return isCancelled // a task, which is no run
	}
	agents, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	if err != nil { // as by a key for the agent alone
		return isCancelled
	}
	at := slices.IndexFunc(agents.Agents, func(one api.AgentInfo) bool { return one.AgentID == agent })
	if at < 0 && len(agents.UnreachableNodes) > 0 {
		return isCancelled
	}
	if at < 0 { // a cancel starts no agent
		return cancelledBefore
	}
	switch one := agents.Agents[at]; {
	case one.RequestID != nil && *one.RequestID == id:
		return cancelledNow
	case one.RequestID == nil && one.Queued == 0 && slices.Contains([]string{"ready", "stopped", "failed"}, one.State):
		return cancelledBefore
	}
	return isCancelled // it may be one of those that wait, or a task, whose turns have other names
}
