// Package replicated keeps what is saved of agents on several machines: their sessions, pictures and records.
//
//	kept := replicated.New(replicated.Options{Local: local, Root: sessions, Dir: dir, Shared: shared, Dirs: dirs})
//	err := kept.Start(node)                 // before an agent is opened
//	defer kept.Close()                      // after the records of all agents
//	records, err := kept.Open(agent, fresh) // Accept and Settle return once a majority of the machines has what was written
//	err = kept.TakeOver(ctx, agent)         // of a machine that is gone
//	err = kept.Prepare(ctx, agent)          // its files are here then
//
// The files are those on this machine's disk: nothing reads or writes the machines' copy but this package. An agent that runs is
// shipped when a prompt was accepted and when its outcome was recorded, one that does not once its files have changed.
// Whose files those on the disk are says a note beside them, with the epoch of the claim under which they were shipped:
// what was shipped under a later one takes their place before the agent goes on, and they are set aside.
//
// A Store is safe for concurrent use. See supervisor/SUPERVISION.md, §5.10.
package replicated
