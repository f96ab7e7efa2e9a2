package protocol

import "strings"

// IsVariableName reports whether an environment variable may have that name: ASCII letters,
// digits and underscores, no digit first. A shell understands no other.
func IsVariableName(name string) bool {
	const letters, digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_", "0123456789"
	return strings.TrimLeft(name, letters+digits) == "" && strings.TrimLeft(name, digits) == name && name != ""
}
