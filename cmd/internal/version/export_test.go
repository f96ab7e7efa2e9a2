package version

import "runtime/debug"

// From is Of with the facts of another build.
func From(linked string, info *debug.BuildInfo) string { return of(linked, info) }
