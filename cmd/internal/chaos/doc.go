// Package chaos attacks a real server as its worst day would, and checks that
// it kept its word.
//
//	report, err := chaos.Run(ctx, chaos.Options{Nexus: path, Seed: 7, Time: time.Minute, Agents: 20, Dir: dir, Disk: disk})
//	err = report.Print(os.Stdout)
//	if !report.Passed() { … }
//
// Run starts nexus serve and talks to it as any client does. A [Plan], which
// follows from the seed alone, says who does what and when: drivers, one for
// each agent, send, cancel, repeat, destroy and create; followers read the
// events; the attacker kills and stops processes, fills the disk, and kills the
// server and starts it again. All that was asked, answered and seen is a
// [Record] of the history; a [Checker] judges it.
//
// Goroutines: one for each agent's driver and one for its follower, and the
// attacker's; Run joins them all. History and Checker are safe for concurrent
// use, a Plan does not change.
//
// It refuses to signal a process that is not a child of its own server. It runs
// on Linux. The contract is SPEC.md §2.3.
package chaos
