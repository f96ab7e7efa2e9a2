// Package forward is what the façade needs of several machines, so that any of them answers for any agent.
//
// [Machines] says which machines there are and whose an agent is, and connects to them. Nil stands for one machine alone,
// which asks nobody. See supervisor/SUPERVISION.md, §5.10.
package forward
