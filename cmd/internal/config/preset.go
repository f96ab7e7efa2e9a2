package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/strict"
)

// checkPreset finds what is wrong with a preset. Whether its paths can be used is for
// the agent to say.
func checkPreset(name string, p protocol.Permissions) error {
	member := "presets." + name
	switch {
	case rights.Builtin(name):
		return &strict.Error{Path: member, Problem: "is the name of a built-in preset"}
	case protocol.CheckModelName(name) != nil:
		return fmt.Errorf("the name of a preset: %w", protocol.CheckModelName(name))
	case !rights.Builtin(p.Preset):
		return &strict.Error{Path: member + ".preset", Problem: fmt.Sprintf("is %q, want yolo, trusted or sandboxed", p.Preset)}
	}
	if e, ok := errors.AsType[*strict.Error](p.CheckTools(protocol.Permissions{})); ok {
		return &strict.Error{Path: member + "." + e.Path, Problem: e.Problem}
	}
	return nil
}

// checkPresets refuses what a project's file says about permissions: it comes
// from anybody, and the agent itself may write it (child/AGENT.md, D12).
func (f file) checkPresets() error {
	for name := range f.Presets {
		return &strict.Error{Path: "presets." + name, Problem: "stands in a project's file, which may define no presets: move it to config.json in the home"}
	}
	for name, p := range f.Profiles {
		if p.Preset != "" {
			return &strict.Error{Path: "profiles." + name + ".preset", Problem: "stands in a project's file, which may choose no preset: move it to config.json in the home"}
		}
	}
	return nil
}

// expanded puts the user's home in the place of a "~" at the beginning of a
// path.
func expanded(presets map[string]protocol.Permissions, home string) map[string]protocol.Permissions {
	each := func(paths []string) []string {
		for i, path := range paths {
			if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
				paths[i] = filepath.Join(home, rest)
			}
		}
		return paths
	}
	for name, p := range presets {
		p.AllowedPaths, p.WritePaths, p.BlockedPaths = each(p.AllowedPaths), each(p.WritePaths), each(p.BlockedPaths)
		for tool, r := range p.Tools {
			r.AllowedPaths, r.BlockedPaths = each(r.AllowedPaths), each(r.BlockedPaths)
			p.Tools[tool] = r
		}
		presets[name] = p
	}
	return presets
}
