package cluster

import "time"

// Miss has a machine be as one that was cut off for a while: it has heard nobody else, and not of the claim on an agent.
func Miss(n *Node, agent string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, m := range n.machines {
		m.Heard = time.Now().Add(-2 * lostAfter)
		n.machines[name] = m
	}
	n.revision = n.claims[agent].Epoch - 1
	setClaim(n, agent, Claim{})
}
