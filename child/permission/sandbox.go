package permission

import (
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// Sandbox is what the kernel lets the programs of a tool do.
type Sandbox struct {
	ReadWrite, ReadOnly, Blocked []string
	// Except lies within what is blocked, and is not; the longer path counts.
	Except  []string
	Network bool
	// Hosts, unless nil, are the only ones that programs reach; then Network is false, and the
	// kernel must hold the programs to this as well.
	Hosts []string
	// Bounded says that paths are blocked or bounded by the permissions, so that
	// the kernel must hold the programs to this or they must not run.
	Bounded bool
}

// Sandbox are the bounds for programs: they change files where the tool may,
// read everything (under sandboxed: where the tool may), and have no network
// under sandboxed.
func (p Policy) Sandbox(tool string) Sandbox {
	rule, level := p.Permissions.Tools[tool], p.Level()
	accessible := []string{p.Cwd}
	accessible = append(accessible, p.Permissions.AllowedPaths...)
	for _, a := range p.Allowances {
		if a.Tool == tool && a.Action == protocol.ActionExecute && a.Dir != "" && level == rights.Trusted {
			accessible = append(accessible, a.Dir)
		}
	}
	if level == rights.Yolo {
		accessible = []string{"/"}
	}
	all := accessible
	if level == rights.Trusted {
		all = []string{"/"}
	}
	s := Sandbox{
		ReadWrite: rights.IntersectBounds(rights.IntersectBounds(accessible, p.Permissions.WritePaths), rule.AllowedPaths),
		ReadOnly:  rights.IntersectBounds(all, rule.AllowedPaths),
		Blocked:   rights.Union(p.Permissions.BlockedPaths, rule.BlockedPaths),
		Network:   level != rights.Sandboxed && p.Permissions.Network == nil,
		Hosts:     p.Permissions.Network,
	}
	s.Bounded = p.Permissions.WritePaths != nil || rule.AllowedPaths != nil || len(s.Blocked) > 0
	for _, path := range p.private().Except {
		if !rights.Contains(s.Blocked, path) { // what the permissions block has no exceptions
			s.Except = append(s.Except, path)
		}
	}
	s.Blocked = rights.Union(s.Blocked, p.private().Paths)
	return s
}
