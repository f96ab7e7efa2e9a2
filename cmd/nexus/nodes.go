package main

import (
	"os"
	"strings"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/supervisor/cluster"
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

// alone is this machine as list_nodes has it where it is in no cluster.
func (s status) alone() api.ListNodesResult {
	host, _ := os.Hostname()
	self := nodeInfo(cluster.Machine{Name: host, State: cluster.Up, Version: s.version, Load: cluster.Measure(s.agents), Heard: time.Now()})
	return api.ListNodesResult{Node: host, Nodes: []api.NodeInfo{self}}
}

func nodeInfo(m cluster.Machine) api.NodeInfo {
	n := api.NodeInfo{
		Node: m.Name, State: string(m.State), Labels: m.Labels, Version: m.Version, Processors: m.Load.Processors, Agents: m.Load.Agents,
		LastHeard: m.Heard.UTC().Format(time.RFC3339Nano),
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
