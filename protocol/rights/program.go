package rights

import (
	"maps"
	"slices"

	"nexus.internal/protocol"
)

// The names by which rules know the programs of tools, and a program of another make.
const (
	shell   = "shell"
	program = "program"
)

// OfProgram is what an agent with p may do whose program is of another make, as [Beyond] compares it: that program
// runs others unasked, as shell would with the mode allow, within the paths of its own rule. No rule for shell
// holds it. Under sandboxed the kernel keeps it in, as it does with the programs of shell, which nobody is asked about.
func OfProgram(p protocol.Permissions) protocol.Permissions {
	rule := p.Tools[program]
	rule.Mode = ""
	if p.Preset != Sandboxed {
		rule.Mode = ModeAllow
	}
	p.DisabledTools = slices.DeleteFunc(slices.Clone(p.DisabledTools), func(tool string) bool { return tool == shell })
	if p.Tools = maps.Clone(p.Tools); p.Tools == nil {
		p.Tools = map[string]protocol.ToolRule{}
	}
	p.Tools[shell] = rule
	return p
}
