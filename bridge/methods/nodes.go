package methods

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/ratelimit"
)

// maxBoundAgents bounds those that drain_node and remove_node name, and leftEvery is how often is looked whether agents are left.
const (
	maxBoundAgents = 100
	leftEvery      = 200 * time.Millisecond
)

func (m *agentMethods) drainNode(ctx context.Context, _ *rpc.Call, p api.DrainNodeParams) (api.DrainNodeResult, error) {
	self, err := m.self(p.Node)
	on, alone := !protocol.Value(p.Undo), self.Cluster == nil
	switch {
	case err != nil:
		return api.DrainNodeResult{}, err
	case alone && on:
		return api.DrainNodeResult{}, api.Invalid("node", "the server is none of a cluster, so no other machine can have its agents")
	case alone:
		return api.DrainNodeResult{Node: self.Node, BoundAgents: []api.BoundAgent{}}, nil
	}
	if err := agents.Drain(m.agents, on); err != nil {
		return api.DrainNodeResult{}, err
	}
	waited, cancel := context.WithTimeout(ctx, time.Duration(protocol.Value(p.WaitSeconds))*time.Second)
	defer cancel()
	for {
		left := agents.Progress(m.agents)
		if !on || left.Left == 0 || ratelimit.Sleep(waited, leftEvery) != nil {
			result := api.DrainNodeResult{
				Node: self.Node, Draining: on, HandedOver: left.Given, Left: left.Left, InTurn: left.InTurn, Bound: len(left.Bound), BoundAgents: []api.BoundAgent{},
			}
			for _, id := range slices.Sorted(maps.Keys(left.Bound)) {
				if len(result.BoundAgents) < maxBoundAgents {
					result.BoundAgents = append(result.BoundAgents, api.BoundAgent{AgentID: id, Reason: left.Bound[id]})
				}
			}
			return result, ctx.Err()
		}
	}
}

func (m *agentMethods) labelNode(_ context.Context, _ *rpc.Call, p api.LabelNodeParams) (api.LabelNodeResult, error) {
	self, err := m.self(p.Node)
	if err != nil {
		return api.LabelNodeResult{}, err
	}
	labels, err := m.nodes.Label(protocol.Value(p.Set), protocol.Value(p.Remove))
	return api.LabelNodeResult{Node: self.Node, Labels: labels}, err
}

// removePatience is how long remove_node waits if nobody says, in seconds.
const removePatience = 60

func (m *agentMethods) removeNode(ctx context.Context, _ *rpc.Call, p api.RemoveNodeParams) (api.RemoveNodeResult, error) {
	wait := uint64(removePatience)
	if p.WaitSeconds != nil {
		wait = *p.WaitSeconds
	}
	waited, cancel := context.WithTimeout(ctx, time.Duration(wait)*time.Second)
	defer cancel()
	result, err := m.nodes.Remove(waited, p.Node, protocol.Value(p.Force))
	result.WaitingAgents = result.WaitingAgents[:min(len(result.WaitingAgents), maxBoundAgents)]
	return result, errors.Join(err, ctx.Err())
}

// self is what this machine knows of all, if a call is of this one.
func (m *agentMethods) self(named *string) (api.ListNodesResult, error) {
	all := m.nodes.Nodes()
	if named != nil && *named != all.Node {
		return all, api.Invalid("node", "no machine of that name is known")
	}
	return all, nil
}
