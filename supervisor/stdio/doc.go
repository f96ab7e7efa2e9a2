// Package stdio is the supervisor.Launcher for nexus-child and for every other
// program that speaks the line protocol on its stdin and stdout.
//
//	launchers := map[string]supervisor.Launcher{"": &stdio.Launcher{CommandLine: child, Log: log}}
//
// An incarnation is a process of package proc. It must say ready, in our
// version of the protocol, before the launch's deadline. Lines on its stdout
// that are no frames are logged and passed over, up to a budget; they never
// reach a subscriber. A Launcher keeps nothing and starts no goroutine that
// outlives the incarnation; a Spares joins its own when its Run ends. See SPEC §3.1
// and SUPERVISION §5.2 and §5.9.
package stdio
