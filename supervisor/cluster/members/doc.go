// Package members says which machines a cluster is to have, and removes one from it.
//
//	m, err := members.Open(members.Options{Machine: "a", Joined: 3, System: nc, Register: r, Since: certified, Dir: dir})
//	node, err := cluster.Join(nc, cluster.Options{Machine: "a", Members: m})
//	removal, err := m.Remove(ctx, node, agents, "b", false)
//
// That a machine was removed, the machines keep in the register; how many there are to be, NATS says, whose servers elect who leads them. Members asks
// it as the user of its system, which only an engine of ours lets in: of a NATS that others have, nothing is removed but what the register says. Who joins
// is let in by the engines, by certificates. See supervisor/SUPERVISION.md, §5.10.
package members
