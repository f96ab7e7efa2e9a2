// Package proctree reads the tree of the machine's processes, and ends the
// processes of it that came of this one.
//
//	pids, err := proctree.Descendants(os.Getpid()) // what /proc tells
//	tag, err := proctree.TakeLineageTag()          // what comes of this process bears it from now on
//	err = proctree.SetSubreaper(true)              // orphans become children of this process
//	live, err := proctree.ReapChildren(wanted, kill, nil, nil)
//	left, err := proctree.EndLineage(tag.Has, func() {})
//
// A process id may pass to another process at any time. The package therefore
// kills only three kinds of processes: children of this process that nobody has
// reaped, processes held by a pidfd whose lineage was read after the pidfd was
// opened, and process groups of which every living member was seen to be wanted.
// A [Process], an id with a start time, names one process for good.
//
// Reading /proc works where there is one, and fails elsewhere with the error of
// the file. Everything that signals, reaps or marks processes exists on Linux alone;
// [SetUndumpable], which keeps a process from being read, does nothing elsewhere.
//
// The functions are safe for concurrent use, except that only one goroutine may
// reap children at a time. They start no goroutine. What it refuses: to start
// processes (supervisor/proc and child/sandbox do). The contract is SPEC.md §5.5.
package proctree
