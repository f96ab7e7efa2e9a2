package workplace

import (
	"slices"

	"nexus.internal/child/permission"
	"nexus.internal/protocol"
)

// State is what get_state tells of the permissions.
type State struct {
	Level         string     `json:"permission_level"`
	DisabledTools []string   `json:"disabled_tools"`
	Policy        Where      `json:"policy"`
	Allowances    Allowances `json:"session_allowances"`
	// Allowed are the same allowances, one by one.
	Allowed []protocol.Allowance `json:"allowances"`
	// Ceiling is what the agent can hand on to one that it creates.
	Ceiling protocol.Permissions `json:"ceiling"`
}

// Where says where tools may go, and how.
type Where struct {
	Cwd string `json:"cwd"`
	// AllowedPaths are within reach beside Cwd; nil under yolo: all is.
	AllowedPaths *[]string `json:"allowed_paths"`
	// WritePaths, unless nil, are all that may be changed.
	WritePaths   *[]string                    `json:"write_paths"`
	BlockedPaths []string                     `json:"blocked_paths"`
	Tools        map[string]protocol.ToolRule `json:"tools"`
}

// Allowances are what was allowed for the rest of the session.
type Allowances struct {
	ReadPaths  []string            `json:"read_paths"`
	WritePaths []string            `json:"write_paths"`
	ExecDirs   map[string][]string `json:"exec_dirs"` // by tool
	Tools      []string            `json:"tools"`     // whatever they are called with
}

// State tells what holds.
func (w *Workplace) State() State {
	p := w.now()
	s := State{
		Level: p.Level().String(), DisabledTools: p.Permissions.DisabledTools, Ceiling: p.Ceiling(), Allowed: slices.Clone(p.Allowances),
		Policy: Where{
			Cwd:          p.Cwd,
			BlockedPaths: p.Permissions.BlockedPaths, Tools: p.Permissions.Tools,
		},
		Allowances: Allowances{ExecDirs: map[string][]string{}},
	}
	if p.Level() != permission.Yolo {
		s.Policy.AllowedPaths = &p.Permissions.AllowedPaths
	}
	if p.Permissions.WritePaths != nil {
		s.Policy.WritePaths = &p.Permissions.WritePaths
	}
	a := &s.Allowances
	for _, allowed := range p.Allowances {
		switch allowed.Action {
		case protocol.ActionRead:
			a.ReadPaths = add(a.ReadPaths, allowed.Dir)
		case protocol.ActionWrite:
			a.WritePaths = add(a.WritePaths, allowed.Dir)
		case protocol.ActionExecute:
			a.ExecDirs[allowed.Tool] = add(a.ExecDirs[allowed.Tool], allowed.Dir)
		case protocol.ActionNone, protocol.ActionDelegate, protocol.ActionExternal:
			a.Tools = add(a.Tools, allowed.Tool)
		}
	}
	return s
}

func add(list []string, entry string) []string {
	if slices.Contains(list, entry) {
		return list
	}
	return append(list, entry)
}
