package foreign

import "strings"

// maxExpanded bounds what one pattern of files stands for, as far as it is looked at. One that stands for more may lead anywhere.
const maxExpanded = 256

// leadsElsewhere reports whether a pattern of files may look elsewhere than below its path. Programs differ in what they expand: alternatives in braces, extended groups as
// +(…), and characters behind a backslash count by what any of them makes of these.
func leadsElsewhere(pattern string) bool {
	if len(pattern) > maxPath || leadsOut().MatchString(pattern) {
		return true
	}
	plain := strings.NewReplacer(`\`, "", "[.]", ".", "[/]", "/").Replace(pattern)
	all := []string{plain}
	for more := true; more; {
		more = false
		var next []string
		for _, p := range all {
			expanded, found := expandOne(p)
			more = more || found
			next = append(next, expanded...)
		}
		if all = next; len(all) > maxExpanded {
			return true
		}
	}
	for _, p := range all {
		if leadsOut().MatchString(p) {
			return true
		}
	}
	return false
}

// expandOne replaces the first group of alternatives that has none in it by each of them; found is false if there is none, and the pattern alone is returned.
func expandOne(p string) (all []string, found bool) {
	open := -1
	for i := range len(p) {
		switch {
		case p[i] == '{' || p[i] == '(' && i > 0 && strings.IndexByte("@?*+!", p[i-1]) >= 0:
			open = i
		case open >= 0 && (p[i] == '}' && p[open] == '{' || p[i] == ')' && p[open] == '('):
			return alternatives(p, open, i), true
		}
	}
	return []string{p}, false
}

// alternatives are the patterns in which a group, whose brackets stand at these places, is replaced by what it may stand for.
func alternatives(p string, open, end int) (all []string) {
	before, inner, after := p[:open], p[open+1:end], p[end+1:]
	separator, repeats, none := ",", false, false
	if p[open] == '(' {
		kind := before[len(before)-1]
		before, separator = before[:len(before)-1], "|"
		repeats, none = kind == '*' || kind == '+', kind == '*' || kind == '?'
		if kind == '!' { // any name but these
			inner = "*"
		}
	}
	each := strings.Split(inner, separator)
	if none {
		each = append(each, "")
	}
	for _, one := range each {
		all = append(all, before+one+after)
		if repeats {
			all = append(all, before+one+one+after)
		}
	}
	return all
}
