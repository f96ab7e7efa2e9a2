// Nexus-bench measures what nexus costs, as ratios against the floors of the
// machine it runs on (SPEC.md §8). A figure and its floor are taken in turns,
// so that a busy moment meets both.
//
//	nexus-bench [-quick] [-only PART] [-agents N] [-svg FILE] [-bin DIR]
//
// The table and what the floors are go to stdout, progress to stderr. The
// processes of the floors are nexus-bench-floor, a bare Go program, and this
// one again as a bare HTTP server. Nexus is measured from outside, by HTTP or
// over its pipes, on the real programs beside this one; what they write goes to
// a directory that is removed. Memory, processes and descriptors are read where
// the system has /proc; what is left by a killed server is seen on Linux alone.
//
// Exit status 0 says that the figures were taken, not that they are within
// their bounds: it is no test. A full run takes about five minutes.
package main
