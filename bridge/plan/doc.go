// Package plan carries out the tasks of a plan in the order of their
// dependencies, and keeps a record from which that goes on after a kill.
//
//	record, err := plan.Open(path, run)   // new, or what was done before
//	status, err := plan.Execute(ctx, plan.ExecuteOptions{Plan: p, Workers: 4, Record: record, Work: work})
//
// [Execute] gives each task that could run, the one of the lowest priority first,
// to a worker that has none; workers are numbers, and what they are is the
// caller's business. It has one goroutine for each task under way and joins
// them. A [Record] is a file of JSON lines; what it says is written before
// anybody is told, and so survives the end of every process. Only one process
// has it open: that is the caller's to see to.
//
// What it refuses: a record of another plan, and to go on where it cannot write.
// The contract is SPEC.md §6.7.
package plan
