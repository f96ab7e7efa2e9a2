// Package version says which version of nexus a program is.
//
//	version.Of()     // v1.2.3
//	version.Commit() // of the source, where that is known
//
// It only reads what the toolchain put into the program, and is safe for concurrent use.
package version

import (
	"cmp"
	"runtime/debug"
)

// linked and commit are set by the linker (make build).
var linked, commit string

// unknown is the version of a program that was built without one.
const unknown = "dev"

// Of is the version that was linked in (make build), else that of the module, as
// go install and go build know it, else the commit that was built, else "dev".
func Of() string { return of(linked, facts()) }

// Commit is the commit that was linked in (make build), else the one that go build
// recorded; "" if neither did.
func Commit() string {
	revision, _ := built(facts())
	return cmp.Or(commit, revision)
}

// facts are those of the toolchain; nil if it left none.
func facts() *debug.BuildInfo {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	return info
}

func of(linked string, info *debug.BuildInfo) string {
	if linked != "" {
		return linked
	}
	if info == nil {
		return unknown
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := built(info)
	switch {
	case revision == "":
		return unknown
	case modified:
		return revision[:min(len(revision), 12)] + "-dirty"
	}
	return revision[:min(len(revision), 12)]
}

// built is the commit that info names, and whether more than it was built.
func built(info *debug.BuildInfo) (revision string, modified bool) {
	if info == nil {
		return "", false
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	return revision, modified
}
