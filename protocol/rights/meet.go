package rights

import (
	"fmt"

	"nexus.internal/protocol"
)

// Meet is the most that neither a nor b forbids; both are resolved. For any
// call in any directory its verdict is at least as strict as that of each of
// them.
func Meet(a, b protocol.Permissions) protocol.Permissions {
	met := protocol.Permissions{
		Preset:        Lower(a.Preset, b.Preset),
		DisabledTools: Union(a.DisabledTools, b.DisabledTools),
		WritePaths:    BothBounds(a.WritePaths, b.WritePaths),
		BlockedPaths:  Union(a.BlockedPaths, b.BlockedPaths),
		AllowedPaths:  Common(Reach(a), Reach(b)),
	}
	if met.Preset == Yolo {
		met.AllowedPaths = Union(a.AllowedPaths, b.AllowedPaths) // they say nothing there
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
func Lower(a, b string) string {
	if rank(a) < rank(b) {
		return a
	}
	return b
}

// Reach is where p lets tools go beside the working directory.
func Reach(p protocol.Permissions) []string {
	if p.Preset == Yolo {
		return []string{"/"}
	}
	return p.AllowedPaths
}

// withRule adds the rule for one tool, if there is anything to it.
func withRule(rules map[string]protocol.ToolRule, name string, a, b protocol.Permissions) map[string]protocol.ToolRule {
	of, other := a.Tools[name], b.Tools[name]
	rule := protocol.ToolRule{
		Mode:         meetModes(of.Mode, a.Preset, other.Mode, b.Preset),
		AllowedPaths: BothBounds(of.AllowedPaths, other.AllowedPaths),
		BlockedPaths: Union(of.BlockedPaths, other.BlockedPaths),
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
	case a == ModeDeny || b == ModeDeny:
		return ModeDeny
	case a == ModeAsk || b == ModeAsk:
		return ModeAsk
	case a == b:
		return a
	case a == ModeAllow && presetB == Yolo, b == ModeAllow && presetA == Yolo:
		return ModeAllow
	default:
		return ""
	}
}

// Excess names what was asked for expressly and is not in met, which is what
// came of it; nil if all of it is.
func Excess(asked, met protocol.Permissions) []string {
	var over []string
	if rank(asked.Preset) > rank(met.Preset) {
		over = append(over, fmt.Sprintf("the preset %s (at most %s)", asked.Preset, met.Preset))
	}
	missing := func(what string, asked, got []string) {
		for _, path := range asked {
			if !Holds(got, path) {
				over = append(over, what+" "+path)
			}
		}
	}
	missing("the allowed path", asked.AllowedPaths, Reach(met))
	missing("the write path", asked.WritePaths, met.WritePaths)
	for name, rule := range asked.Tools {
		if rule.Mode == ModeAllow && met.Tools[name].Mode != ModeAllow {
			over = append(over, "the mode allow of "+name)
		}
		missing("for "+name+" the path", rule.AllowedPaths, met.Tools[name].AllowedPaths)
	}
	return Sorted(over)
}
