package toolenv

import (
	"slices"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// State tells what holds.
func (env *Env) State() protocol.PermissionState {
	p := env.currentPolicy()
	s := protocol.PermissionState{
		Level: p.Level(), DisabledTools: p.Permissions.DisabledTools, Ceiling: p.Ceiling(), Allowed: slices.Clone(p.Allowances),
		Policy: protocol.PermissionPolicy{
			Cwd:          p.Cwd,
			BlockedPaths: p.Permissions.BlockedPaths, Tools: p.Permissions.Tools,
		},
		Allowances: protocol.SessionAllowances{ExecDirs: map[string][]string{}},
	}
	if p.Level() != rights.Yolo {
		s.Policy.AllowedPaths = &p.Permissions.AllowedPaths
	}
	if p.Permissions.WritePaths != nil {
		s.Policy.WritePaths = &p.Permissions.WritePaths
	}
	a := &s.Allowances
	for _, allowed := range p.Allowances {
		switch allowed.Action {
		case protocol.ActionRead:
			a.ReadPaths = appendUnique(a.ReadPaths, allowed.Dir)
		case protocol.ActionWrite:
			a.WritePaths = appendUnique(a.WritePaths, allowed.Dir)
		case protocol.ActionExecute:
			a.ExecDirs[allowed.Tool] = appendUnique(a.ExecDirs[allowed.Tool], allowed.Dir)
		case protocol.ActionNone, protocol.ActionDelegate, protocol.ActionExternal:
			a.Tools = appendUnique(a.Tools, allowed.Tool)
		}
	}
	return s
}

func appendUnique(list []string, entry string) []string {
	if slices.Contains(list, entry) {
		return list
	}
	return append(list, entry)
}
