package api

import "reflect"

type (
	// Placement says which machine of a cluster is to have a new agent. What is given must all hold; of the machines that fit, the one with the fewest
	// agents for each processor is taken.
	Placement struct {
		// The machine, by its name.
		Node *string `json:"node,omitzero"`
		// Labels that the machine has.
		Labels *map[string]string `json:"labels,omitzero"`
		// An agent, or a saved session, whose machine it is.
		Near *string `json:"near,omitzero"`
	}

	// ListNodesResult is every machine that is known to the server, sorted by name.
	ListNodesResult struct {
		Cluster *string `json:"cluster"` // null for a server that is in none
		Node    string  `json:"node"`    // the machine that answers
		// Problem is why that machine can agree on nothing with the others; null if it can.
		Problem *string    `json:"problem"`
		Nodes   []NodeInfo `json:"nodes"`
	}

	// NodeInfo is one machine. LastHeard is RFC 3339, UTC; null of a machine that the server has not heard of since it started, of which no more is known than that
	// agents are its.
	NodeInfo struct {
		Node string `json:"node"`
		// State is draining of a machine that is up and is to have no agents (drain_node), lost of one that was not heard of for 5 s, left of
		// one that ended, and removed of one that was removed from the cluster while agents wait for a machine of its name.
		State           string            `json:"state" enum:"up,draining,lost,left,removed"`
		Labels          map[string]string `json:"labels"`
		Version         string            `json:"version"`
		Processors      int               `json:"processors"`
		MemoryBytes     *int64            `json:"memory_bytes"`      // null where the system does not tell
		FreeMemoryBytes *int64            `json:"free_memory_bytes"` // likewise
		// Agents is how many run there. Of a machine that is lost or removed it is how many agents and saved sessions are still its own: others have taken over the rest.
		Agents    int     `json:"agents"`
		MaxAgents *int    `json:"max_agents"` // null for no bound
		LastHeard *string `json:"last_heard"`
	}

	// DrainNodeParams are those of drain_node.
	DrainNodeParams struct {
		// The machine, by its name; the one that is asked if missing.
		Node *string `json:"node,omitzero" audit:"text"`
		// Whether the machine takes agents again. What was handed over stays where it is.
		Undo *bool `json:"undo,omitzero" default:"false" audit:"rule"`
		// How long to wait for the agents that are left, in seconds. The drain goes on without anybody who waits.
		WaitSeconds *uint64 `json:"wait_s,omitzero" max:"300" unit:"seconds" default:"0" audit:"-"`
	}

	// DrainNodeResult is how far a machine is.
	DrainNodeResult struct {
		Node     string `json:"node"`
		Draining bool   `json:"draining"`
		// HandedOver are the agents and saved sessions that other machines were given since the drain, or the server, began.
		HandedOver int `json:"handed_over"`
		// Left are those that are to be handed over still. InTurn of them have a turn, or are asked for one by an agent that has a turn.
		Left   int `json:"left"`
		InTurn int `json:"in_turn"`
		// Bound are those that stay, as no machine that takes agents can have them; BoundAgents the first 100 of them by name.
		Bound       int          `json:"bound"`
		BoundAgents []BoundAgent `json:"bound_agents"`
	}

	// LabelNodeParams are those of label_node.
	LabelNodeParams struct {
		// The machine, by its name; the one that is asked if missing.
		Node *string `json:"node,omitzero" audit:"text"`
		// Labels that the machine is to have, by name: what it has of the same name goes. A name has letters, digits, - and _, at most 64; a value at most 64 bytes.
		Set *map[string]string `json:"set,omitzero" audit:"rule"`
		// Names of labels that it is not to have any more. Those that it does not have are no error.
		Remove *[]string `json:"remove,omitzero" audit:"rule"`
	}

	// LabelNodeResult are the labels that a machine has from now on, also after a restart.
	LabelNodeResult struct {
		Node   string            `json:"node"`
		Labels map[string]string `json:"labels"`
	}

	// RemoveNodeParams are those of remove_node.
	RemoveNodeParams struct {
		// The machine, by its name: another one than the one that is asked.
		Node string `json:"node" audit:"text"`
		// Whether to remove a machine that is up, and does not drain or has agents yet. Its server ends then.
		Force *bool `json:"force,omitzero" default:"false" audit:"rule"`
		// How long to wait until all is settled, in seconds. The removal goes on without anybody who waits; the same call again waits for it, and tells of it.
		WaitSeconds *uint64 `json:"wait_s,omitzero" max:"300" unit:"seconds" default:"60" audit:"-"`
	}

	// RemoveNodeResult is how far the removal of a machine is.
	RemoveNodeResult struct {
		Node string `json:"node"`
		// Settled says that all is as it is to be without the machine: each group of NATS has a leader and none counts the machine, what the machines keep is on as many as it
		// should be, and agents that others can have are theirs. Unsettled says what is not so yet, in sentences for people.
		Settled   bool     `json:"settled"`
		Unsettled []string `json:"unsettled"`
		// OutsideNATS says that the cluster is one by a NATS that was there already: its servers, and what they keep, are its operator's and stay as they are.
		OutsideNATS bool `json:"outside_nats"`
		// Waiting are the agents and saved sessions that wait for a machine of that name, as none that is up shares their directory; WaitingAgents the first 100 of them by name.
		Waiting       int      `json:"waiting"`
		WaitingAgents []string `json:"waiting_agents"`
	}

	// BoundAgent is an agent, or a saved session, that stays on a machine that drains.
	BoundAgent struct {
		AgentID string `json:"agent_id"`
		Reason  string `json:"reason"`
	}
)

// Named are the agents and sessions that parameters of the method name by its row's Of, in that order.
func (m Method) Named(params any) (names []string) {
	v := reflect.ValueOf(params)
	for _, name := range m.Of {
		for _, b := range fieldsOf(v.Type()) {
			if b.name != name {
				continue
			}
			if f, there := at(v, b.index); there && f.String() != "" {
				names = append(names, f.String())
			}
		}
	}
	return names
}

// fieldsOf are the members of parameters, without those of the objects within them.
func fieldsOf(t reflect.Type) (list []bound) {
	for f := range t.Fields() {
		list = append(list, bound{index: f.Index, name: jsonName(f)})
	}
	return list
}

// StaleHeader is the header of an answer by a machine of a cluster that does not reach a majority of the others: since when what it has may be old, in
// RFC 3339, or StaleNever if it has not reached one since it started, so that nothing is known of the others.
const (
	StaleHeader = "X-Nexus-Stale"
	StaleNever  = "never"
)
