package api

import (
	"maps"
	"slices"
	"strings"

	"nexus.internal/protocol"
)

// Bounds of an agent's own variables.
const (
	MaxEnv     = 64        // variables
	MaxEnvSize = 128 << 10 // bytes of all names and values

	maxEnvName = 128 // bytes
)

// reserved are variables that decide how a program is found, loaded or read by a
// shell, where an agent lives, or how Go's runtime works.
var reserved = []string{
	"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TERM", "SHELL", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4",
	"PROMPT_COMMAND", "GODEBUG", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GOTRACEBACK", "GORACE", "GOCOVERDIR",
	"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
}

// CheckEnv finds variables that an agent cannot have. The error is a *ParamError.
func CheckEnv(env map[string]string) error {
	if len(env) > MaxEnv {
		return Invalid("env", "want at most %d variables, have %d", MaxEnv, len(env))
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		upper := strings.ToUpper(name)
		switch {
		case !protocol.IsVariableName(name), len(name) > maxEnvName:
			return Invalid("env", "%q is no name of a variable", clip(name))
		case slices.Contains(reserved, upper), strings.HasPrefix(upper, "LD_"), strings.HasPrefix(upper, "DYLD_"),
			strings.HasPrefix(upper, "NEXUS"), strings.HasPrefix(upper, "BASH_FUNC_"), strings.HasSuffix(upper, "_API_KEY"):
			return Invalid("env", "%s cannot be set", name)
		case strings.Contains(env[name], "\x00"):
			return Invalid("env."+name, "contains a NUL character")
		}
		size += len(name) + len(env[name])
	}
	if size > MaxEnvSize {
		return Invalid("env", "want at most %d bytes, have %d", MaxEnvSize, size)
	}
	return nil
}
