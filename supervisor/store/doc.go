// Package store keeps what the server knows of agents under their names: the
// events, which requests were accepted and how each ended, what was used, and the
// limits. The conversation is not in it: the agent writes that into its session.
//
//	kept := store.NewLocal(store.Options{Layout: store.Layout{Named: dir, Temp: temp}})
//	defer kept.Close()                             // after the records of the agents
//	records, err := kept.Open("worker-1", false)   // for the supervisor
//	err = kept.Rename("worker-1", "worker-2")      // while nobody has them open
//
// A [Store] is the seam: the supervisor, the broker, the sessions and the façade
// know no other way to the records, and no name in it is a file. [Local] has them
// in files beside the sessions, one log for each agent; package storetest has the
// tests that every Store must pass.
//
// A Store is safe for concurrent use, for different agents. It decides on no
// outcome and no limit. See SPEC §5.3, §5.6 and §5.7.
package store
