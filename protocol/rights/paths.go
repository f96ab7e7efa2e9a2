package rights

import (
	"slices"
	"strings"
)

// Within reports whether path is dir or lies in it. Both are absolute and clean.
func Within(dir, path string) bool {
	if dir == path {
		return true
	}
	if !strings.HasSuffix(dir, "/") {
		dir += "/"
	}
	return strings.HasPrefix(path, dir)
}

// Contains reports whether path is one of dirs or lies in one.
func Contains(dirs []string, path string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return Within(dir, path) })
}

// Deepest is the length of the longest of dirs that holds path; 0 if none does.
func Deepest(dirs []string, path string) (length int) {
	for _, dir := range dirs {
		if Within(dir, path) {
			length = max(length, len(dir))
		}
	}
	return length
}

// Union are the entries of both lists, sorted.
func Union(a, b []string) []string {
	if len(a)+len(b) == 0 {
		return nil
	}
	return Sorted(slices.Concat(a, b))
}

// IntersectDirs is what lies in both lists of directories.
func IntersectDirs(a, b []string) []string {
	both := []string{}
	for _, path := range a {
		if Contains(b, path) {
			both = append(both, path)
		}
	}
	for _, path := range b {
		if Contains(a, path) {
			both = append(both, path)
		}
	}
	return Sorted(both)
}

// IntersectBounds is Common for lists in which nil stands for everywhere.
func IntersectBounds(a, b []string) []string {
	switch {
	case a == nil:
		return slices.Clone(b)
	case b == nil:
		return slices.Clone(a)
	default:
		return IntersectDirs(a, b)
	}
}

// Sorted puts list in order, in place, each entry once.
func Sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
