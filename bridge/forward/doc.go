// Package forward has what is asked of an agent answered by the machine of a cluster that has it.
//
//	client := forward.NewClient(machines)
//	defer client.Close()
//	machine, elsewhere := client.Owner(agent)
//	result, err := client.Call(ctx, machine, call, out)   // of the machine that is asked
//	machine, by, err := forward.From(request.Header)      // of the one that answers
//
// [Machines] says which machines there are and whose an agent is, and connects to them. A call goes there as HTTP: the JSON-RPC
// request at the agent's path, with the principal, the request id and the trace in headers. The answer comes back as it stands.
//
// It decides nothing of what a principal may do, and repeats no call that failed: whether one that broke was carried out is not known. A Client is
// safe for concurrent use. See supervisor/SUPERVISION.md, §5.10.
package forward
