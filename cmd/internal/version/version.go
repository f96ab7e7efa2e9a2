// Package version says which version of nexus a program is.
//
//	var linked = "" // by the linker: -X main.linked=…
//	version.Of(linked)
//
// It only reads what the toolchain put into the program, and is safe for concurrent use.
package version

import "runtime/debug"

// unknown is the version of a program that was built without one.
const unknown = "dev"

// Of is the version that was linked in (make build), else that of the module, as
// go install and go build know it, else the commit that was built, else "dev".
func Of(linked string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = nil
	}
	return of(linked, info)
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
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "-dirty"
			}
		}
	}
	if revision == "" {
		return unknown
	}
	return revision + dirty
}
