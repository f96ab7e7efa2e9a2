// Package rights compares what agents may do: values of [protocol.Permissions],
// resolved (with a built-in preset, clean lists, and paths without symbolic
// links). Both halves need it: the child holds its agent within a bound, the
// façade compares two agents. What permissions mean for one call is decided in
// child/permission. See SPEC §4.5.
//
//	met := rights.Meet(asked, ceiling)    // the most that neither forbids
//	over := rights.Beyond(theirs, mine)   // what theirs allows and mine does not
//
// All functions are pure and safe for concurrent use.
package rights

// The built-in presets.
const (
	Yolo      = "yolo"
	Trusted   = "trusted"
	Sandboxed = "sandboxed"
)

// The modes of a [protocol.ToolRule].
const (
	ModeAllow = "allow"
	ModeAsk   = "ask"
	ModeDeny  = "deny"
)

// rank is higher for a preset that allows more; that of an unknown one is the
// lowest.
func rank(preset string) int {
	switch preset {
	case Yolo:
		return 2
	case Trusted:
		return 1
	default:
		return 0
	}
}
