// Nexus-bench measures what nexus costs, as ratios against the floors of the
// machine it runs on, both taken in the same run (SPEC.md §8).
//
//	nexus-bench [-bin DIR] [-agents N] [-sends N]
//
// The floors are the least that the same job can cost: a line echoed by a Go
// process at the other end of two pipes, a net/http handler that does one such
// echo, a process started until its first line, lines split off a pipe, and an
// append with fdatasync. The processes of the floors are this program again, in
// a role. Nexus is measured from outside, by HTTP, on the real programs beside
// this one. Exit status 0 says that the figures were taken, not that they are
// within their bounds: a busy machine is no fault of nexus.
package main
