package methods

import (
	"cmp"
	"slices"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/plan"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
)

// every is what all machines list, in no order, each entry with its machine.
func every[R, E any](of rpc.Everywhere[R], list func(R) []E, node func(*E) *string) []E {
	all := []E{}
	for machine, one := range of.Results {
		for _, e := range list(one) {
			*node(&e) = machine
			all = append(all, e)
		}
	}
	return all
}

// everyAgent is list_agents of a cluster.
func everyAgent(_ api.None, of rpc.Everywhere[api.ListAgentsResult]) (all api.ListAgentsResult) {
	all.UnreachableNodes = of.Missing
	all.Agents = every(of, func(r api.ListAgentsResult) []api.AgentInfo { return r.Agents }, func(a *api.AgentInfo) *string { return &a.Node })
	slices.SortFunc(all.Agents, func(a, b api.AgentInfo) int {
		return cmp.Or(strings.Compare(a.AgentID, b.AgentID), strings.Compare(a.Node, b.Node))
	})
	return all
}

// everySummary is get_agent_summaries of a cluster.
func everySummary(_ api.AgentSummariesParams, of rpc.Everywhere[api.AgentSummariesResult]) (all api.AgentSummariesResult) {
	all.UnreachableNodes = of.Missing
	all.Agents = every(of, func(r api.AgentSummariesResult) []api.AgentSummary { return r.Agents }, func(a *api.AgentSummary) *string { return &a.Node })
	slices.SortFunc(all.Agents, func(a, b api.AgentSummary) int {
		return cmp.Or(strings.Compare(a.AgentID, b.AgentID), strings.Compare(a.Node, b.Node))
	})
	return all
}

// firstSessions are the parameters of list_sessions by which each machine of a cluster gives all that a page may have of it.
func firstSessions(p api.ListSessionsParams) (api.ListSessionsParams, error) {
	offset, limit := protocol.Value(p.Offset), protocol.ValueOr(p.Limit, api.DefaultSessions)
	if offset > api.MaxSessions || offset+limit > api.MaxSessions {
		return p, api.Invalid("offset", "want, with limit, at most %d in a cluster", api.MaxSessions)
	}
	p.Offset, p.Limit = new(uint64(0)), new(offset+limit)
	return p, nil
}

// everySession is list_sessions of a cluster. The last session is that of the machine which is asked.
func everySession(p api.ListSessionsParams, of rpc.Everywhere[api.ListSessionsResult]) (all api.ListSessionsResult) {
	all.Offset, all.Limit, all.UnreachableNodes = protocol.Value(p.Offset), protocol.ValueOr(p.Limit, api.DefaultSessions), of.Missing
	for _, one := range of.Results {
		all.Total += one.Total
	}
	sessions := every(of, func(r api.ListSessionsResult) []api.SavedSession { return r.Sessions }, func(s *api.SavedSession) *string { return &s.Node })
	all.LastSession = of.Results[of.Self].LastSession
	slices.SortFunc(sessions, func(a, b api.SavedSession) int {
		return cmp.Or(cmp.Compare(b.UpdatedAt, a.UpdatedAt), strings.Compare(a.Name, b.Name), strings.Compare(a.Node, b.Node))
	})
	all.Sessions = page(sessions, all.Offset, all.Limit)
	return all
}

// firstRuns are the parameters of list_runs by which each machine of a cluster gives all that a page may have of it.
func firstRuns(p api.ListRunsParams) (api.ListRunsParams, error) {
	offset, limit := protocol.Value(p.Offset), protocol.ValueOr(p.Limit, api.DefaultRuns)
	p.Offset, p.Limit = new(uint64(0)), new(min(offset+limit, plan.Kept))
	return p, nil
}

// everyRun is list_runs of a cluster. Runs are not taken over.
func everyRun(p api.ListRunsParams, of rpc.Everywhere[api.ListRunsResult]) (all api.ListRunsResult) {
	all.UnreachableNodes = slices.Sorted(slices.Values(slices.Concat(of.Missing, of.Empty)))
	for _, one := range of.Results {
		all.Total += one.Total
	}
	runs := every(of, func(r api.ListRunsResult) []api.PlanRun { return r.Runs }, func(r *api.PlanRun) *string { return &r.Node })
	slices.SortFunc(runs, func(a, b api.PlanRun) int {
		return cmp.Or(cmp.Compare(b.UpdatedAt, a.UpdatedAt), strings.Compare(a.PlanRunID, b.PlanRunID), strings.Compare(a.Node, b.Node))
	})
	all.Runs = page(runs, protocol.Value(p.Offset), protocol.ValueOr(p.Limit, api.DefaultRuns))
	return all
}

// page are the entries from an index on, as many as limit at most.
func page[E any](all []E, offset, limit uint64) []E {
	from := min(offset, uint64(len(all)))
	return all[from:min(from+limit, uint64(len(all)))]
}
