package config

import (
	"cmp"
	"maps"
	"slices"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// Kind is a kind of agents of another make (SPEC §4.11): which program they are, and how it is
// started.
type Kind struct {
	// Protocol is how the program is spoken to; "" in a file is that of the known kind of this name.
	Protocol string `json:"protocol" wire:"default" enum:",acp,claude,codex,pi,nexus,pipe"`
	// Command is the program and its arguments; empty in a file is that of the known kind of this
	// name, or that each agent names its own.
	Command []string `json:"command" wire:"default"`
	// Home is "own", the default, or "user".
	Home string `json:"home" wire:"default" enum:",own,user"`
	// Sandbox confines the program and all that it starts.
	Sandbox bool `json:"sandbox" wire:"default"`
	// Models is the provider whose models the program reaches through the broker, without a key.
	Models string `json:"models" wire:"default"`
	// Env are variables of the program's environment.
	Env map[string]string `json:"env" wire:"default"`
	// Agents lets agents create agents of this kind, too.
	Agents bool `json:"agents" wire:"default"`
}

// Program is the program of an agent of the kind. Its command may be empty.
func (k Kind) Program(name string) protocol.AgentProgram {
	return protocol.AgentProgram{Kind: name, Protocol: k.Protocol, Command: slices.Clone(k.Command), Home: k.Home, Sandbox: k.Sandbox, Models: k.Models}
}

// knownKinds are those that nexus knows by name.
var knownKinds = map[string]Kind{
	"acp":      {Protocol: "acp"},
	"claude":   {Protocol: "claude", Command: []string{"claude"}},
	"codex":    {Protocol: "codex", Command: []string{"codex"}},
	"gemini":   {Protocol: "acp", Command: []string{"gemini", "--acp"}},
	"goose":    {Protocol: "acp", Command: []string{"goose", "acp"}},
	"nexus":    {Protocol: "nexus"},
	"opencode": {Protocol: "acp", Command: []string{"opencode", "acp"}},
	"pi":       {Protocol: "pi", Command: []string{"pi"}},
	"pipe":     {Protocol: "pipe"},
	"qwen":     {Protocol: "acp", Command: []string{"qwen", "--acp"}},
}

// layKinds puts the kinds of a file over what is known.
func (c *Config) layKinds(kinds map[string]Kind) {
	c.Kinds = maps.Clone(c.Kinds)
	for name, k := range kinds {
		known := knownKinds[name]
		k.Protocol = cmp.Or(k.Protocol, known.Protocol)
		if len(k.Command) == 0 {
			k.Command = known.Command
		}
		c.Kinds[name] = k
	}
}

// kindsWithProgram are the names of the kinds of which agents need not name a program.
func (c *Config) kindsWithProgram() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		if len(c.Kinds[name].Command) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// checkKinds finds what is wrong with the kinds of a file.
func (f file) checkKinds() error {
	for _, name := range slices.Sorted(maps.Keys(f.Kinds)) {
		k, path := f.Kinds[name], "kinds."+name
		k.Protocol = cmp.Or(k.Protocol, knownKinds[name].Protocol)
		switch {
		case protocol.CheckModelName(name) != nil:
			return &strict.Error{Path: path, Problem: "is no name of a kind: " + protocol.CheckModelName(name).Error()}
		case checkEnums(k, path) != nil:
			return checkEnums(k, path)
		case k.Protocol == "":
			return &strict.Error{Path: path + ".protocol", Problem: "is missing, which only a kind that is known by name may leave out"}
		}
		p := k.Program(name)
		if len(p.Command) == 0 {
			p.Command = []string{"each agent's own"}
		}
		if err := p.Check(); err != nil {
			return &strict.Error{Path: path, Problem: "is wrong: " + err.Error()}
		}
	}
	return nil
}
