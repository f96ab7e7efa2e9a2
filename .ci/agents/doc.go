// Package agents runs agents of other makes, as people get them from npm, under nexus-child, with
// the model that nexus probe plays on loopback (make test-agents). It is a module of its own, and no part of
// make test: it needs npm and the network once, for the pinned versions, which stay in
// ${XDG_CACHE_HOME:-~/.cache}/nexus-agents. What cannot be installed is said, and fails
// the test. UPDATE=1 writes the cards of the probe to fixtures/agents-of-others.
//
// Another agent is a row of the table agents.
package agents
