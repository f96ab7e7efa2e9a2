package rights

import (
	"fmt"
	"slices"
	"strings"

	"nexus.internal/protocol"
)

// Beyond names what p allows and bound does not; nil if p is within bound: then
// no call of an agent with p gets a milder verdict than it would get with bound.
// It compares by what is written: a path that p does not block is beyond a bound
// that blocks it, also where p reaches it by no other means. The working
// directory of each must be among its AllowedPaths.
func Beyond(p, bound protocol.Permissions) []string {
	var over []string
	add := func(format string, args ...any) { over = append(over, fmt.Sprintf(format, args...)) }
	if rank(p.Preset) > rank(bound.Preset) {
		add("the preset %s (at most %s)", p.Preset, bound.Preset)
	}
	over = append(over, beyondNetwork(p, bound)...)
	for _, path := range missing(AccessiblePaths(p), AccessiblePaths(bound)) {
		add("the path %s", path)
	}
	if bound.WritePaths != nil && p.WritePaths == nil {
		add("changes elsewhere than in the write paths")
	} else if bound.WritePaths != nil {
		for _, path := range missing(p.WritePaths, bound.WritePaths) {
			add("the write path %s", path)
		}
	}
	for _, path := range missing(bound.BlockedPaths, p.BlockedPaths) {
		add("the blocked path %s", path)
	}
	for _, tool := range bound.DisabledTools {
		if !denies(p, tool) {
			add("the tool %s", tool)
		}
	}
	for tool := range p.Tools {
		over = append(over, beyondRule(p, bound, tool)...)
	}
	for tool := range bound.Tools {
		over = append(over, beyondRule(p, bound, tool)...)
	}
	return Sorted(over)
}

// Widens names where p, in the place of bound, would be looser, now or once the owner replaces some
// of its members by others and leaves the rest: a rule for a disabled tool holds as soon as the tool
// is no longer disabled. So each member is compared by itself, as if the others denied nothing:
// neither a mode deny nor a blocked path of all tools stands for what bound says elsewhere. What
// Beyond names is among it; nil if there is nothing, as of a p that is bound. A working directory is a member of its
// own, which the caller compares: unlike for Beyond, it is not to be among the AllowedPaths.
func Widens(p, bound protocol.Permissions) []string {
	over := append(Beyond(p, bound), beyondNetwork(unruled(p), bound)...)
	for _, tool := range bound.DisabledTools {
		if !slices.Contains(p.DisabledTools, tool) {
			over = append(over, "the tool "+tool)
		}
	}
	p.DisabledTools, p.BlockedPaths, bound.DisabledTools, bound.BlockedPaths = nil, nil, nil, nil
	for tool := range p.Tools {
		over = append(over, beyondRule(p, bound, tool)...)
	}
	for tool := range bound.Tools {
		over = append(over, beyondRule(p, bound, tool)...)
	}
	if over == nil {
		return nil
	}
	return Sorted(over)
}

// beyondRule is Beyond for one tool for which either has a rule.
func beyondRule(p, bound protocol.Permissions, tool string) (over []string) {
	if denies(p, tool) {
		return nil
	}
	have, most := p.Tools[tool], bound.Tools[tool]
	switch {
	case denies(bound, tool):
		return []string{"the tool " + tool}
	case have.Mode == ModeAllow && most.Mode != ModeAllow && (most.Mode != "" || bound.Preset != Yolo),
		have.Mode == "" && most.Mode == ModeAsk:
		over = append(over, tool+" without asking")
	}
	if most.AllowedPaths != nil && have.AllowedPaths == nil {
		over = append(over, tool+" outside of its paths")
	} else if most.AllowedPaths != nil {
		for _, path := range missing(have.AllowedPaths, most.AllowedPaths) {
			over = append(over, "for "+tool+" the path "+path)
		}
	}
	for _, path := range missing(most.BlockedPaths, slices.Concat(have.BlockedPaths, p.BlockedPaths)) {
		over = append(over, "for "+tool+" the blocked path "+path)
	}
	return over
}

// denies reports whether p lets nothing of a tool through.
func denies(p protocol.Permissions, tool string) bool {
	return slices.Contains(p.DisabledTools, tool) || p.Tools[tool].Mode == ModeDeny
}

func missing(paths, dirs []string) (out []string) {
	for _, path := range paths {
		if !Contains(dirs, path) {
			out = append(out, path)
		}
	}
	return out
}

func subset(names, of []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(of, name) })
}

// BeyondAllowances names what was allowed for one session and not for the other.
func BeyondAllowances(all, bound []protocol.Allowance) (over []string) {
	for _, a := range all {
		covered := func(b protocol.Allowance) bool {
			return a.Tool == b.Tool && a.Action == b.Action && (a.Dir == b.Dir || b.Dir != "" && a.Dir != "" && Within(b.Dir, a.Dir)) && (a.Alone && a.Dir == b.Dir || !b.Alone) &&
				subset(a.Programs, b.Programs) && subset(a.Hosts, b.Hosts)
		}
		if !slices.ContainsFunc(bound, covered) {
			what := a.Tool
			if a.Dir != "" {
				what += " in " + a.Dir
			}
			if len(a.Hosts) > 0 {
				what += " of " + strings.Join(a.Hosts, ", ")
			}
			over = append(over, what+", which was allowed for the session")
		}
	}
	return Sorted(over)
}
