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

// Preset is a permission level that is built in.
type Preset string

// The presets, from the most to the least that is allowed.
const (
	Yolo      Preset = rights.Yolo
	Trusted   Preset = rights.Trusted
	Sandboxed Preset = rights.Sandboxed
)

// Default is the preset of an agent for which none was named.
const Default = Trusted

// builtin reports whether a preset of that name is built in.
func builtin(name string) bool {
	return Preset(name) == Yolo || Preset(name) == Trusted || Preset(name) == Sandboxed
}

// String is the preset's name.
func (p Preset) String() string { return string(p) }

// Resolve checks what is asked for and replaces the name of a preset by what it
// stands for: the result has a built-in preset, and lists that are clean. custom
// are the presets of the configuration; in each of them Preset names the
// built-in one that it is made of. What is asked for beside a custom preset adds
// to its paths, tightens its bounds and replaces its rules for the same tool.
// "" is [Default]. An error names the member.
func Resolve(asked protocol.Permissions, custom map[string]protocol.Permissions) (protocol.Permissions, error) {
	asked, err := rights.Clean(asked)
	if err != nil {
		return protocol.Permissions{}, err
	}
	switch {
	case asked.Preset == "":
		asked.Preset = Default.String()
		return asked, nil
	case builtin(asked.Preset):
		return asked, nil
	}
	made, ok := custom[asked.Preset]
	if !ok {
		names := append([]string{Yolo.String(), Trusted.String(), Sandboxed.String()}, slices.Sorted(maps.Keys(custom))...)
		return protocol.Permissions{}, fmt.Errorf("unknown preset %q, want one of %s", asked.Preset, strings.Join(names, ", "))
	}
	if made, err = CheckCustom(made); err != nil {
		return protocol.Permissions{}, fmt.Errorf("preset %q of the configuration: %w", asked.Preset, err)
	}
	made.DisabledTools = rights.Union(made.DisabledTools, asked.DisabledTools)
	made.AllowedPaths = rights.Union(made.AllowedPaths, asked.AllowedPaths)
	made.WritePaths = rights.BothBounds(made.WritePaths, asked.WritePaths)
	made.BlockedPaths = rights.Union(made.BlockedPaths, asked.BlockedPaths)
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
	if !builtin(made.Preset) {
		return protocol.Permissions{}, &strict.Error{Path: "preset", Problem: fmt.Sprintf("is %q, want yolo, trusted or sandboxed", made.Preset)}
	}
	return rights.Clean(made)
}
