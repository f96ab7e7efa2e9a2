package agents

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/supervisor"
)

// Kind is a kind of agents of another make.
type Kind struct {
	// Program has no Command where each agent names its own.
	Program protocol.AgentProgram
	Env     map[string]string // of the program
	Agents  bool              // agents may create agents of it
	Path    string            // where the program is now; "" where it is not found
}

// KindList is the kinds of agents of other makes, as list_kinds has them.
func KindList(r *Registry) (list []api.KindInfo) {
	kinds := r.o.Admission.Kinds()
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		list = append(list, api.KindInfo{
			Kind: name, Protocol: k.Program.Protocol, Command: append([]string{}, k.Program.Command...),
			Home: cmp.Or(k.Program.Home, protocol.ProgramHomeOwn), Sandbox: k.Program.Sandbox, Models: Known(k.Program.Models),
			Agents: k.Agents, Path: Known(k.Path),
		})
	}
	return list
}

// mayHave reports why an agent cannot create one of another make as p asks for it. It names a kind
// that the owner lets agents have, and nothing about the program: that could do more than it itself.
func mayHave(r *Registry, by string, p api.CreateAgentParams) error {
	for name, given := range map[string]bool{
		"command": p.Command != nil, "args": p.Args != nil, "home": p.Home != nil, "sandbox": p.Sandbox != nil, "models": p.Models != nil,
	} {
		if given {
			return api.Invalid(name, "%s cannot set it: that is for people", by)
		}
	}
	if p.Kind == nil || r.o.Admission.Kinds()[*p.Kind].Agents {
		return nil
	}
	return api.Invalid("kind", "%s cannot create agents of kind %s: the owner lets agents have those whose kind says agents in the configuration", by, *p.Kind)
}

// checkReplaced is NOT_PERMITTED if a key that rotate_key has replaced asks for an agent without walls: that would read
// the new key for it.
func checkReplaced(r *Registry, p api.CreateAgentParams) error {
	wall := p.ParentAgentID != nil || protocol.Value(p.Preset) == rights.Sandboxed || r.o.Admission.Kinds()[protocol.Value(p.Kind)].Program.Sandbox
	if protocol.Value(p.Preset) == rights.Yolo || p.Kind != nil && !protocol.ValueOr(p.Sandbox, wall) {
		return api.Denied("rotate_key has replaced this key, so it creates no agent whose programs have no walls; the server's key file has the new one")
	}
	return nil
}

// checkWalls is NOT_PERMITTED if the program of an agent of another make could do unasked what the agent that wants it
// is asked about, or may not do: the ceiling says what is allowed, not who is asked.
func checkWalls(r *Registry, by string, p api.CreateAgentParams, up parent) error {
	if p.Kind == nil {
		return nil
	}
	preset, err := r.Basis(protocol.ValueOr(p.Preset, rights.Sandboxed))
	if err != nil {
		return err
	}
	bound := *ceilingOf(up.state)
	asked := protocol.Permissions{Preset: preset, Network: protocol.Value(p.Network), AllowedPaths: []string{"/"}}
	theirs := rights.OfProgram(rights.Intersect(asked, bound))
	if up.state.Program != nil {
		bound = rights.OfProgram(bound)
	}
	over := rights.Beyond(theirs, bound)
	if len(over) == 0 {
		return nil
	}
	return api.Denied("a program of another make does what it can without asking, under %s more than %s does unasked: %s", preset, by, strings.Join(over, ", "))
}

// makeForeign completes the spec of an agent of another make by its kind and by what was asked for. One
// that is made for an agent is confined unless a person says otherwise: a program without walls could do
// more than its creator.
func makeForeign(r *Registry, s *supervisor.Spec, p api.CreateAgentParams, forAgent bool) error {
	if p.Kind == nil {
		return nil
	}
	kinds := r.o.Admission.Kinds()
	k, ok := kinds[*p.Kind]
	if !ok {
		known := slices.Sorted(maps.Keys(kinds))
		return api.Invalid("kind", "there is none %s: the kinds are %s", *p.Kind, strings.Join(known, ", ")).Near(*p.Kind, known)
	}
	program := k.Program
	if p.Command != nil {
		program.Command = *p.Command
	}
	program.Command = slices.Concat(program.Command, protocol.Value(p.Args))
	program.Home = protocol.ValueOr(p.Home, program.Home)
	program.Models = protocol.ValueOr(p.Models, program.Models)
	basis, err := r.Basis(cmp.Or(s.Permissions.Preset, rights.Default))
	sandboxed := err == nil && basis == rights.Sandboxed
	if sandboxed && !protocol.ValueOr(p.Sandbox, true) {
		return api.Invalid("sandbox", "the preset sandboxed confines all programs of its agent")
	}
	program.Sandbox = protocol.ValueOr(p.Sandbox, program.Sandbox || forAgent || sandboxed)
	if len(k.Program.Command) == 0 && p.Command == nil {
		return api.Invalid("command", "is missing: the kind %s names no program", *p.Kind)
	}
	if err := program.Check(); err != nil {
		return api.Invalid("kind", "%v", err)
	}
	s.Program, s.StartTimeout = &program, protocol.ProgramStartTimeout
	s.Env = overlaid(k.Env, s.Env)
	return nil
}

// resumeForeign has an agent of another make go on as its session says, if that is what was asked for.
func resumeForeign(r *Registry, s *supervisor.Spec, saved *protocol.AgentProgram) error {
	switch asked := s.Program; {
	case asked != nil && saved == nil:
		return api.Invalid("kind", "the saved agent %s is one of nexus, and stays so", s.ID)
	case asked != nil && asked.Kind != saved.Kind:
		return api.Invalid("kind", "the saved agent %s is of kind %s, and stays so", s.ID, saved.Kind)
	case saved == nil:
		return nil
	}
	s.Program, s.StartTimeout = saved, protocol.ProgramStartTimeout
	s.Env = overlaid(r.o.Admission.Kinds()[saved.Kind].Env, s.Env)
	return nil
}

// overlaid is base with what over has.
func overlaid(base, over map[string]string) map[string]string {
	if len(base) == 0 {
		return over
	}
	all := maps.Clone(base)
	maps.Copy(all, over)
	return all
}
