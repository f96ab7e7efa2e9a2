package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/members"
)

// Nodes is what list_nodes says: the machines of the cluster, or this one alone.
func (s status) Nodes() api.ListNodesResult {
	if s.machines == nil {
		return s.alone()
	}
	result := api.ListNodesResult{Cluster: &s.machines.o.Cluster, Node: s.machines.o.Machine}
	if problems := s.machines.warnings(); len(problems) > 0 {
		result.Problem = new(strings.TrimPrefix(problems[0], "cluster: "))
	}
	for _, m := range s.machines.node.Machines() {
		result.Nodes = append(result.Nodes, nodeInfo(m))
	}
	return result
}

// Label changes the labels of this machine.
func (s status) Label(set map[string]string, remove []string) (labels map[string]string, err error) {
	if s.machines == nil {
		return nil, api.Invalid("node", "the server is none of a cluster")
	}
	for label, value := range set {
		if err := cluster.CheckLabel(label, value); err != nil {
			return nil, api.Invalid("set", "%v", err)
		}
		if slices.Contains(remove, label) {
			return nil, api.Invalid("remove", "%s is to be set, too", label)
		}
	}
	for i, label := range remove { // a name that none can have was meant otherwise
		if cluster.CheckLabel(label, "") != nil {
			return nil, api.Invalid(fmt.Sprintf("remove[%d]", i), "%.80q is no name of a label: it has letters, digits, - and _, at most 64, and begins with a letter or a digit", label)
		}
	}
	labels, err = s.machines.node.Label(set, remove)
	if errors.Is(err, cluster.ErrLabels) {
		err = api.Invalid("set", "%v", err)
	}
	return labels, err
}

// Remove removes a machine from the cluster.
func (s status) Remove(ctx context.Context, node string, force bool) (api.RemoveNodeResult, error) {
	if s.machines == nil {
		return api.RemoveNodeResult{}, api.Invalid("node", "the server is none of a cluster")
	}
	done, err := s.machines.members.Remove(ctx, s.machines.node, s.machines.kept, node, force)
	if refused, ok := errors.AsType[*members.RefusedError](err); ok {
		return api.RemoveNodeResult{}, api.Invalid("node", "%s", refused.Why)
	}
	if errors.Is(err, cluster.ErrNoQuorum) {
		return api.RemoveNodeResult{}, &api.Error{
			Kind: api.KindNoQuorum, Details: "the machines do not agree on the removal: " + err.Error(), Err: err,
			Suggestions: []string{"Send it again when a majority of the machines is there: a removal that has begun goes on."},
		}
	}
	if err != nil {
		return api.RemoveNodeResult{}, err
	}
	return api.RemoveNodeResult{
		Node: node, Settled: len(done.Unsettled) == 0, Unsettled: done.Unsettled, OutsideNATS: s.machines.engine == nil,
		Waiting: len(done.Waiting), WaitingAgents: done.Waiting,
	}, nil
}

// alone is this machine as list_nodes has it where it is in no cluster.
func (s status) alone() api.ListNodesResult {
	host, _ := os.Hostname()
	self := nodeInfo(cluster.Machine{Name: host, State: cluster.Up, Version: s.version, Load: cluster.Measure(s.agents), Heard: time.Now()})
	return api.ListNodesResult{Node: host, Nodes: []api.NodeInfo{self}}
}

func nodeInfo(m cluster.Machine) api.NodeInfo {
	n := api.NodeInfo{
		Node: m.Name, State: string(m.State), Labels: m.Labels, Version: m.Version, Processors: m.Load.Processors, Agents: m.Load.Agents,
	}
	if !m.Heard.IsZero() {
		n.LastHeard = new(m.Heard.UTC().Format(time.RFC3339Nano))
	}
	if m.State == cluster.Lost || m.State == cluster.RemovedState {
		n.Agents = m.Claims // none of them runs
	}
	if m.State == cluster.Up && m.Draining {
		n.State = "draining"
	}
	if m.Load.MemoryBytes > 0 {
		n.MemoryBytes, n.FreeMemoryBytes = &m.Load.MemoryBytes, &m.Load.FreeBytes
	}
	if m.Load.MaxAgents > 0 {
		n.MaxAgents = &m.Load.MaxAgents
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	return n
}
