package rights

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

const (
	maxEntries = 256  // of one list of paths or names
	maxPath    = 4096 // bytes

	// maxPermissions bounds their JSON, in bytes: it is an argument of a command line, which
	// may have 128 KiB, and stands up to three times in one frame.
	maxPermissions = 96 << 10
)

// Clean checks what p may hold, whatever its preset, and returns it with its lists in
// order: paths are absolute and clean, modes are known, no list has more than 256
// entries, and all have at most 96 KiB as JSON. The error, a *strict.Error, names the member.
func Clean(p protocol.Permissions) (_ protocol.Permissions, err error) {
	if p.DisabledTools, err = names("disabled_tools", p.DisabledTools); err != nil {
		return p, err
	}
	if p.AllowedPaths, err = paths("allowed_paths", p.AllowedPaths); err != nil {
		return p, err
	}
	if p.WritePaths, err = paths("write_paths", p.WritePaths); err != nil {
		return p, err
	}
	if p.BlockedPaths, err = paths("blocked_paths", p.BlockedPaths); err != nil {
		return p, err
	}
	if p.Network, err = hosts("network", p.Network); err != nil {
		return p, err
	}
	if len(p.Tools) > maxEntries {
		return p, &strict.Error{Path: "tools", Problem: fmt.Sprintf("has more than %d entries", maxEntries)}
	}
	rules := make(map[string]protocol.ToolRule, len(p.Tools))
	for name, r := range p.Tools {
		member := "tools." + name
		switch r.Mode {
		case "", ModeAllow, ModeAsk, ModeDeny:
		default:
			return p, &strict.Error{Path: member + ".mode", Problem: fmt.Sprintf("is %q, want allow, ask or deny", r.Mode)}
		}
		if r.AllowedPaths, err = paths(member+".allowed_paths", r.AllowedPaths); err != nil {
			return p, err
		}
		if r.BlockedPaths, err = paths(member+".blocked_paths", r.BlockedPaths); err != nil {
			return p, err
		}
		rules[name] = r
	}
	p.Tools = nil
	if len(rules) > 0 {
		p.Tools = rules
	}
	text, err := json.Marshal(p, jsontext.AllowInvalidUTF8(true))
	if err == nil && len(text) > maxPermissions {
		err = &strict.Error{Problem: fmt.Sprintf("the permissions have %d bytes as JSON, and may have %d: shorten their lists", len(text), maxPermissions)}
	}
	return p, err
}

// NotEverything says why the root of the file system is no path that may be changed.
const NotEverything = "is every file of the machine: name the directories that are meant"

// Everything is the index of the root of the file system in a list of the only paths that may be changed; -1
// where it is not there. Who gives permissions is refused such a list (NotEverything): it reads as a bound, and
// lets each program change what the user may. What a session has saved stays.
func Everything(writePaths []string) int {
	return slices.IndexFunc(writePaths, func(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == "/" })
}

// paths cleans a list of paths. It stays nil if it was, and empty if it was.
func paths(member string, list []string) ([]string, error) {
	for i, path := range list {
		problem := ""
		switch {
		case !filepath.IsAbs(path):
			problem = fmt.Sprintf("is %q, want an absolute path", path)
		case strings.ContainsRune(path, 0):
			problem = "holds a NUL"
		case len(path) > maxPath:
			problem = fmt.Sprintf("is longer than %d bytes", maxPath)
		}
		if problem != "" {
			return nil, &strict.Error{Path: fmt.Sprintf("%s[%d]", member, i), Problem: problem}
		}
	}
	cleaned, err := names(member, list)
	for i, path := range cleaned {
		cleaned[i] = filepath.Clean(path)
	}
	return Sorted(cleaned), err
}

func names(member string, list []string) ([]string, error) {
	if len(list) > maxEntries {
		return nil, &strict.Error{Path: member, Problem: fmt.Sprintf("has more than %d entries", maxEntries)}
	}
	return Sorted(slices.Clone(list)), nil
}
