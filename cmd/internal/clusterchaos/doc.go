// Package clusterchaos attacks servers that are one cluster, and checks that they kept their word.
//
//	report, err := clusterchaos.Run(ctx, clusterchaos.Options{Nexus: path, Machines: 3, Seed: 7, Time: time.Minute, Agents: 12, Dir: dir})
//	err = report.Print(os.Stdout)
//	if !report.Passed() { … }
//
// Run starts a server for each machine: in a network namespace and on a disk of its own, where that is possible, else on loopback. Clients
// send to whichever machine they come to, and repeat what was not answered at another one, while servers and their engines are killed and
// stand still, machines are cut off, disks are full and wall clocks jump. What a client asked and was told is a history of operations, which is judged against a
// model of one agent's log: each send has one outcome, a completed one is in the conversation, once, in its order, at every machine. As the conversation is read in the end, where
// each send is in the log is known, so that the judgement of a long history takes seconds.
//
// Goroutines: two for each agent, one for each process, and one for each direction between two machines; Run joins them all. It runs on Linux.
package clusterchaos
