// Package agents is the tools by which an agent works with other agents:
// nexus_create, nexus_destroy, nexus_send, nexus_status, nexus_cancel and
// nexus_shutdown.
//
//	tools := agents.New(parent) // none if the parent takes no host calls
//	registry := tool.NewRegistry(append(files, tools...), options)
//
// Each call is one host call, or a few, of the parent, named as the façade's
// methods and with their parameters. The parent alone decides what may be asked
// for; what it refuses is an error that the model reads. While an agent waits
// for another, subagent_start, subagent_update (every 10 s) and subagent_done
// say so, the last one exactly once, however the wait ended.
//
// The tools are safe for concurrent use. They hold no credentials, know no
// network and start no process. See SPEC.md §4.4 and §5.7.
package agents
