// Package agents is the registry of the façade's agents: which there are, running or
// saved, how one is started, created, found again, renamed and destroyed, who created whom,
// and who may ask what of whom.
//
//	r, err := agents.New(agents.Options{Supervisor: sup, Sessions: catalogue, Admission: admission, Store: store})
//	a, err := r.Resolve(ctx, "worker-1")  // starts a saved one
//	state, err := agents.Ask(ctx, r, a, protocol.GetState{})
//	defer r.Close()
//
// A Registry is safe for concurrent use. What is done with one name is done one after
// another: each name has a lock, and what needs several takes them in the order of their
// names. The package knows no HTTP, answers no call by itself and starts no process: the
// supervisor does. See SPEC.md §5.8, §6.3 and §6.5.
package agents
