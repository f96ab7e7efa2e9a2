package rights

import (
	"path/filepath"

	"nexus.internal/protocol"
)

// Moved is p of an agent whose working directory was from, which is lost, and is to now. Both are absolute and clean, without links. What p
// names in from it names in to, and a directory that it may reach and that has from in it gives way to to: whatever is called so now, p
// said nothing of it. Lists that are nil stay nil.
func Moved(p protocol.Permissions, from, to string) protocol.Permissions {
	p.AllowedPaths, p.WritePaths = movedReach(p.AllowedPaths, from, to), movedReach(p.WritePaths, from, to)
	p.BlockedPaths = moved(p.BlockedPaths, from, to)
	if p.Tools == nil {
		return p
	}
	rules := make(map[string]protocol.ToolRule, len(p.Tools))
	for tool, r := range p.Tools {
		r.AllowedPaths, r.BlockedPaths = movedReach(r.AllowedPaths, from, to), moved(r.BlockedPaths, from, to)
		rules[tool] = r
	}
	p.Tools = rules
	return p
}

// moved are paths of which those in from are in to.
func moved(paths []string, from, to string) []string {
	if paths == nil {
		return nil
	}
	all := make([]string, len(paths))
	for i, path := range paths {
		if all[i] = path; Within(from, path) {
			all[i] = filepath.Join(to, path[len(from):])
		}
	}
	return Sorted(all)
}

// movedReach is moved for paths that may be reached: one that has from in it is to.
func movedReach(paths []string, from, to string) []string {
	all := moved(paths, from, to)
	for i, path := range all {
		if Within(path, from) {
			all[i] = to
		}
	}
	if all == nil {
		return nil
	}
	return Sorted(all)
}
