// Package rights compares what agents may do: values of [protocol.Permissions],
// resolved (with a built-in preset, clean lists, and paths without symbolic
// links). Both halves need it: the child holds its agent within a bound, the
// façade compares two agents. What permissions mean for one call is decided in
// child/permission. See SPEC §4.5.
//
//	met := rights.Intersect(asked, ceiling) // the most that neither forbids
//	over := rights.Beyond(theirs, mine)   // what theirs allows and mine does not
//	over = rights.Widens(asked, held)     // the same, or may once a part of it is replaced
//
// All functions are pure and safe for concurrent use.
package rights

import "slices"

// The built-in presets.
const (
	Yolo      = "yolo"
	Trusted   = "trusted"
	Sandboxed = "sandboxed"
	// Default is that of an agent for which none was named.
	Default = Trusted
)

// presets are the built-in ones, from the most to the least that is allowed.
var presets = []string{Yolo, Trusted, Sandboxed}

// Presets returns the built-in presets, from the most to the least that is allowed.
// The slice is the caller's.
func Presets() []string { return slices.Clone(presets) }

// Builtin reports whether a preset of that name is built in.
func Builtin(name string) bool { return slices.Contains(presets, name) }

// The modes of a [protocol.ToolRule].
const (
	ModeAllow = "allow"
	ModeAsk   = "ask"
	ModeDeny  = "deny"
)

// rank is higher for a preset that allows more; that of an unknown one is the
// lowest.
func rank(preset string) int {
	if i := slices.Index(presets, preset); i >= 0 {
		return -i
	}
	return 1 - len(presets)
}
