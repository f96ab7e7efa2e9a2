package permission

import (
	"slices"
	"strings"
)

// within reports whether path is dir or lies in it. Both are absolute and clean.
func within(dir, path string) bool {
	if dir == path {
		return true
	}
	if !strings.HasSuffix(dir, "/") {
		dir += "/"
	}
	return strings.HasPrefix(path, dir)
}

// holds reports whether path is one of dirs or lies in one.
func holds(dirs []string, path string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(dir, path) })
}

// deepest is the length of the longest of dirs that holds path; 0 if none does.
func deepest(dirs []string, path string) (length int) {
	for _, dir := range dirs {
		if within(dir, path) {
			length = max(length, len(dir))
		}
	}
	return length
}

// union are the entries of both lists, sorted.
func union(a, b []string) []string {
	if len(a)+len(b) == 0 {
		return nil
	}
	return sorted(slices.Concat(a, b))
}

// common is what lies in both lists of directories.
func common(a, b []string) []string {
	both := []string{}
	for _, path := range a {
		if holds(b, path) {
			both = append(both, path)
		}
	}
	for _, path := range b {
		if holds(a, path) {
			both = append(both, path)
		}
	}
	return sorted(both)
}

// bothBounds is common for lists in which nil stands for everywhere.
func bothBounds(a, b []string) []string {
	switch {
	case a == nil:
		return slices.Clone(b)
	case b == nil:
		return slices.Clone(a)
	default:
		return common(a, b)
	}
}
