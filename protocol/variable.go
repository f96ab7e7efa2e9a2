package protocol

import "regexp"

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsVariableName reports whether an environment variable may have that name: ASCII letters,
// digits and underscores, no digit first. A shell understands no other.
func IsVariableName(name string) bool { return variableName.MatchString(name) }
