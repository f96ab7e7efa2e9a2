// Package suggest finds the name that a misspelt one was probably meant to be.
//
//	if name := suggest.Nearest("provders", members); name != "" {
//		problem += fmt.Sprintf("; did you mean %q?", name)
//	}
//
// Its functions keep no state and are safe for concurrent use.
package suggest

import (
	"cmp"
	"strings"
)

// maxName bounds the names that are compared, in bytes: the comparison takes the
// product of two lengths.
const maxName = 64

// Nearest returns the one of known that differs least from name, of several the one
// that begins and ends as name does for the longest; "" if none is near. A name is near if at most a third of its
// characters, and at least one, would have to be inserted, removed, replaced or
// swapped with its neighbour. If none is near, it is the only one that begins with name, of
// at least three bytes, or the only one with a word near to name, as default_model to modell.
// Upper and lower case are alike.
func Nearest(name string, known []string) string {
	if name == "" || len(name) > maxName {
		return ""
	}
	name = strings.ToLower(name)
	best := near(name, known)
	if best == "" && len(name) >= minBeginning {
		best = cmp.Or(begunBy(name, known), wordOf(name, known))
	}
	return best
}

// near is the one of known that differs least from name; "" if none is near.
func near(name string, known []string) string {
	best, least, alike := "", max(1, len(name)/3), -1
	for _, candidate := range known {
		if len(candidate) > maxName {
			continue
		}
		lower := strings.ToLower(candidate)
		d, same := distance(name, lower), sameEnds(name, lower)
		if (d < least || d == least && same > alike) && d < len(candidate) {
			best, least, alike = candidate, d, same
		}
	}
	return best
}

// minBeginning is the length of the shortest beginning that counts, in bytes.
const minBeginning = 3

// begunBy is the only one of known that begins with name; "" if there is none, or several.
func begunBy(name string, known []string) string {
	return only(known, func(candidate string) bool { return strings.HasPrefix(strings.ToLower(candidate), name) })
}

// wordOf is the only one of known that has a word near to name; "" if there is none, or several.
func wordOf(name string, known []string) string {
	return only(known, func(candidate string) bool {
		words := strings.FieldsFunc(candidate, func(r rune) bool { return r == '_' || r == '-' || r == ' ' })
		return len(words) > 1 && near(name, words) != ""
	})
}

// only is the only one of known that is right; "" if there is none, or several.
func only(known []string, right func(candidate string) bool) (found string) {
	for _, candidate := range known {
		if len(candidate) > maxName || !right(candidate) {
			continue
		}
		if found != "" {
			return ""
		}
		found = candidate
	}
	return found
}

// sameEnds is how many bytes two names have in common at their beginnings and ends.
func sameEnds(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for i := 1; i <= min(len(a), len(b)) && a[len(a)-i] == b[len(b)-i]; i++ {
		n++
	}
	return n
}

// distance is the number of edits that turn a into b (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
