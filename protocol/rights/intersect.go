package rights

import (
	"fmt"

	"nexus.internal/protocol"
)

// Intersect is the most that neither a nor b forbids; both are resolved. For any
// call in any directory its verdict is at least as strict as that of each of
// them.
func Intersect(a, b protocol.Permissions) protocol.Permissions {
	met := protocol.Permissions{
		Preset:        MinPreset(a.Preset, b.Preset),
		DisabledTools: Union(a.DisabledTools, b.DisabledTools),
		WritePaths:    IntersectBounds(a.WritePaths, b.WritePaths),
		BlockedPaths:  Union(a.BlockedPaths, b.BlockedPaths),
		Network:       intersectNetworks(a, b),
		AllowedPaths:  IntersectDirs(AccessiblePaths(a), AccessiblePaths(b)),
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

// MinPreset is the preset that allows less.
func MinPreset(a, b string) string {
	if rank(a) < rank(b) {
		return a
	}
	return b
}

// AccessiblePaths is where p lets tools go beside the working directory.
func AccessiblePaths(p protocol.Permissions) []string {
	if p.Preset == Yolo {
		return []string{"/"}
	}
	return p.AllowedPaths
}

// withRule adds the rule for one tool, if there is anything to it.
func withRule(rules map[string]protocol.ToolRule, name string, a, b protocol.Permissions) map[string]protocol.ToolRule {
	of, other := a.Tools[name], b.Tools[name]
	rule := protocol.ToolRule{
		Mode:         intersectModes(of.Mode, a.Preset, other.Mode, b.Preset),
		AllowedPaths: IntersectBounds(of.AllowedPaths, other.AllowedPaths),
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

// intersectModes is the stricter mode. "Allow" on one side alone lifts what the
// other side's preset asks or denies, so it counts only if that is yolo.
func intersectModes(a, presetA, b, presetB string) string {
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
			if !Contains(got, path) {
				over = append(over, what+" "+path)
			}
		}
	}
	missing("the allowed path", asked.AllowedPaths, AccessiblePaths(met))
	missing("the write path", asked.WritePaths, met.WritePaths)
	for _, host := range missingHosts(asked.Network, met) {
		over = append(over, "the network of "+host)
	}
	for name, rule := range asked.Tools {
		if rule.Mode == ModeAllow && met.Tools[name].Mode != ModeAllow {
			over = append(over, "the mode allow of "+name)
		}
		missing("for "+name+" the path", rule.AllowedPaths, met.Tools[name].AllowedPaths)
	}
	return Sorted(over)
}
