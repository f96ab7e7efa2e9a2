// Package register keeps a few small values that all machines of a cluster have, and has the machines tell each other what they need not agree on.
//
//	r, err := register.Open(nc, register.Options{Cluster: "farm", Replicas: 3})
//	defer r.Close()
//	text, revision, known := r.Get("keys")              // as it is known here
//	revision, err = r.Put(ctx, "keys", text, revision)  // only the first of several that change a revision
//	err = r.Use(ctx, []string{"signature"})             // once in the whole cluster
//	err = r.Tell("rates", text)                         // to the machines that hear it
//	answer, err := r.Ask(ctx, "key", question)          // of a machine that knows
//
// A value is in a bucket of JetStream, on a majority of the machines when Put returns. It is for values of a few KiB that change seldom: each machine has
// all of them. Nothing changes without a majority. See supervisor/SUPERVISION.md, §5.10.
package register
