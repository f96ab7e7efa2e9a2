// Package cluster makes machines one: which there are, whose an agent is, and a connection to each.
//
//	node, err := cluster.Join(nc, cluster.Options{Machine: "a", Replicas: 3})
//	defer node.Close()
//	claim, err := node.Claim(ctx, "agent", 0)  // only one machine gets it
//	conn, err := node.Dial(ctx, claim.Machine) // a net.Conn to what that machine serves
//
// It is a client of NATS with JetStream, whose servers agree on who owns what by Raft: package engine runs one on each
// machine. There is no consensus here. A claim on an agent has an epoch, which is a revision of JetStream's: it
// grows with each owner, so what an earlier owner says is known as such (SUPERVISION.md §5.10).
package cluster
