package stdio

import (
	"slices"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// CommandLine knows the program of agents and its flags. It is safe for concurrent use.
type CommandLine interface {
	// Command says how a process of s is started; again is as for [supervisor.Launcher].
	Command(s supervisor.Spec, again bool) (Command, error)
}

// Command is how a process is started. Its Become is all that a spare of the same program and
// Env needs.
type Command struct {
	Program string   // looked up on PATH unless it has a slash
	Env     []string // that all agents have, as KEY=VALUE
	Own     []string // the agent's own variables; of two of a name, the last holds
	protocol.Become
}

func (c Command) argv() []string { return append([]string{c.Program}, c.Args...) }

func (c Command) environ() []string {
	env := slices.Concat(c.Env, c.Own)
	if c.System != nil {
		env = append(env, protocol.SystemVariable+"="+*c.System)
	}
	return env
}
