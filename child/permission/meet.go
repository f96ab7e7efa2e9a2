package permission

import (
	"fmt"
	"path/filepath"

	"nexus.internal/protocol"
)

// Meet is the most that neither a nor b forbids; both are resolved. For any
// call in any directory its verdict is at least as strict as that of each of
// them.
func Meet(a, b protocol.Permissions) protocol.Permissions {
	met := protocol.Permissions{
		Preset:        Lower(Preset(a.Preset), b.Preset),
		DisabledTools: union(a.DisabledTools, b.DisabledTools),
		WritePaths:    bothBounds(a.WritePaths, b.WritePaths),
		BlockedPaths:  union(a.BlockedPaths, b.BlockedPaths),
		AllowedPaths:  common(reach(a), reach(b)),
	}
	if Preset(met.Preset) == Yolo {
		met.AllowedPaths = union(a.AllowedPaths, b.AllowedPaths) // they say nothing there
	}
	if len(met.AllowedPaths) == 0 {
		met.AllowedPaths = nil
	}
	for name := range a.Tools {
		met.Tools = withRule(met.Tools, name, a, b)
	}
	for name := range b.Tools {
		met.Tools = withRule(met.Tools, name, a, b)
	}
	return met
}

// Lower is the preset that allows less.
func Lower(a Preset, b string) string {
	if a.rank() < Preset(b).rank() {
		return a.String()
	}
	return b
}

// reach is where p lets tools go beside the working directory.
func reach(p protocol.Permissions) []string {
	if Preset(p.Preset) == Yolo {
		return []string{"/"}
	}
	return p.AllowedPaths
}

// withRule adds the rule for one tool, if there is anything to it.
func withRule(rules map[string]protocol.ToolRule, name string, a, b protocol.Permissions) map[string]protocol.ToolRule {
	of, other := a.Tools[name], b.Tools[name]
	rule := protocol.ToolRule{
		Mode:         meetModes(of.Mode, a.Preset, other.Mode, b.Preset),
		AllowedPaths: bothBounds(of.AllowedPaths, other.AllowedPaths),
		BlockedPaths: union(of.BlockedPaths, other.BlockedPaths),
	}
	if rule.Mode == "" && rule.AllowedPaths == nil && rule.BlockedPaths == nil {
		return rules
	}
	if rules == nil {
		rules = map[string]protocol.ToolRule{}
	}
	rules[name] = rule
	return rules
}

// meetModes is the stricter mode. "Allow" on one side alone lifts what the
// other side's preset asks or denies, so it counts only if that is yolo.
func meetModes(a, presetA, b, presetB string) string {
	switch {
	case a == modeDeny || b == modeDeny:
		return modeDeny
	case a == modeAsk || b == modeAsk:
		return modeAsk
	case a == b:
		return a
	case a == modeAllow && Preset(presetB) == Yolo, b == modeAllow && Preset(presetA) == Yolo:
		return modeAllow
	default:
		return ""
	}
}

// Excess names what was asked for expressly and is not in met, which is what
// came of it; nil if all of it is.
func Excess(asked, met protocol.Permissions) []string {
	var over []string
	if Preset(asked.Preset).rank() > Preset(met.Preset).rank() {
		over = append(over, fmt.Sprintf("the preset %s (at most %s)", asked.Preset, met.Preset))
	}
	missing := func(what string, asked, got []string) {
		for _, path := range asked {
			if !holds(got, path) {
				over = append(over, what+" "+path)
			}
		}
	}
	missing("the allowed path", asked.AllowedPaths, reach(met))
	missing("the write path", asked.WritePaths, met.WritePaths)
	for name, rule := range asked.Tools {
		if rule.Mode == modeAllow && met.Tools[name].Mode != modeAllow {
			over = append(over, "the mode allow of "+name)
		}
		missing("for "+name+" the path", rule.AllowedPaths, met.Tools[name].AllowedPaths)
	}
	return sorted(over)
}

// CheckCwd says why an agent under that ceiling may not work in cwd: unless the
// ceiling is yolo or names no allowed path, they are all there is.
func CheckCwd(ceiling protocol.Permissions, cwd string) error {
	bounds := reach(ceiling)
	if len(bounds) == 0 || holds(bounds, filepath.Clean(cwd)) {
		return nil
	}
	return fmt.Errorf("%s is outside of what this agent's ceiling allows: %s", cwd, list(bounds))
}

// Move says why the working directory may not become dir: under sandboxed it
// stays in the present one and the allowed paths.
func (p Policy) Move(dir string) error {
	if p.private().holds(dir) {
		return fmt.Errorf(private, dir)
	}
	if holds(p.Permissions.BlockedPaths, dir) {
		return fmt.Errorf("%s is out of bounds for this agent", dir)
	}
	if p.Level() == Sandboxed && !within(p.Cwd, dir) && !holds(p.Permissions.AllowedPaths, dir) {
		return fmt.Errorf("%s is outside of what a sandboxed agent may touch: %s", dir, list(p.Reach("")))
	}
	return nil
}

// Return says why an agent that had this policy may not come back in dir: what is
// outside of the working directory and the allowed paths would be in reach then.
func (p Policy) Return(dir string) error {
	if p.Level() == Yolo || within(p.Cwd, dir) || holds(p.Permissions.AllowedPaths, dir) {
		return nil
	}
	return fmt.Errorf("%s is outside of where this session worked: %s; only set_permissions and set_cwd give it more", dir, list(p.Reach("")))
}

// Ceiling is what an agent with this policy can hand on to one that it creates:
// its permissions, in which the working directory is one of the allowed paths.
func (p Policy) Ceiling() protocol.Permissions {
	c := p.Permissions
	c.AllowedPaths = union(c.AllowedPaths, []string{p.Cwd})
	return c
}
