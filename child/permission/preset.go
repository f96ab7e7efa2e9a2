package permission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/strict"
)

// Resolve checks what is asked for and replaces the name of a preset by what it
// stands for: the result has a built-in preset, and lists that are clean. custom
// are the presets of the configuration; in each of them Preset names the
// built-in one that it is made of. What is asked for beside a custom preset adds
// to its paths, tightens its bounds and replaces its network and its rules for the same tool.
// "" is [rights.Default]. An error names the member.
func Resolve(asked protocol.Permissions, custom map[string]protocol.Permissions) (protocol.Permissions, error) {
	asked, err := rights.Clean(asked)
	if err != nil {
		return protocol.Permissions{}, err
	}
	switch {
	case asked.Preset == "":
		asked.Preset = rights.Default
		return asked, nil
	case rights.Builtin(asked.Preset):
		return asked, nil
	}
	made, ok := custom[asked.Preset]
	if !ok {
		names := append(rights.Presets(), slices.Sorted(maps.Keys(custom))...)
		return protocol.Permissions{}, fmt.Errorf("unknown preset %q, want one of %s", asked.Preset, strings.Join(names, ", "))
	}
	if made, err = CheckCustom(made); err != nil {
		return protocol.Permissions{}, fmt.Errorf("preset %q of the configuration: %w", asked.Preset, err)
	}
	made.DisabledTools = rights.Union(made.DisabledTools, asked.DisabledTools)
	made.AllowedPaths = rights.Union(made.AllowedPaths, asked.AllowedPaths)
	made.WritePaths = rights.IntersectBounds(made.WritePaths, asked.WritePaths)
	made.BlockedPaths = rights.Union(made.BlockedPaths, asked.BlockedPaths)
	if asked.Network != nil {
		made.Network = asked.Network
	}
	if len(asked.Tools) > 0 {
		rules := maps.Clone(made.Tools)
		if rules == nil {
			rules = map[string]protocol.ToolRule{}
		}
		maps.Copy(rules, asked.Tools)
		made.Tools = rules
	}
	return made, nil
}

// CheckCustom cleans a preset of the configuration. An error names the member.
func CheckCustom(made protocol.Permissions) (protocol.Permissions, error) {
	if !rights.Builtin(made.Preset) {
		return protocol.Permissions{}, &strict.Error{Path: "preset", Problem: fmt.Sprintf("is %q, want yolo, trusted or sandboxed", made.Preset)}
	}
	return rights.Clean(made)
}
