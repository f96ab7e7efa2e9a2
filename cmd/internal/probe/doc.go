// Package probe finds out what an agent of another make is and how it behaves: nexus-child runs it,
// as it would under a server, against a model that the probe plays itself.
//
//	card, err := probe.Run(ctx, probe.Options{Child: path, Program: program})
//	lines, err := card.Lines()
//
// Run ends all that it started, and leaves nothing in the user's home: the program has a home of its
// own that is removed afterwards. No real service is asked. See child/FOREIGN.md, §4.11.
package probe
