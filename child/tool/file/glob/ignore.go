package glob

import (
	"path"
	"strings"
)

// Rules are the lines of one .gitignore file, with git's meaning. The zero
// value ignores nothing.
type Rules struct {
	rules []rule
}

// rule is one line.
type rule struct {
	names    []string // the pattern; if anywhere, its first name alone counts
	anywhere bool     // it is matched with the last name of a path alone
	plain    bool     // it is one name without wildcards
	dirsOnly bool
	keep     bool // it takes back what rules before it say
}

// ParseRules reads the text of a .gitignore file. A line that is no valid
// pattern is passed over, as git does.
func ParseRules(text string) Rules {
	var r Rules
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\uFEFF"), "\n") {
		if rule, ok := parseRule(strings.TrimSuffix(line, "\r")); ok {
			r.rules = append(r.rules, rule)
		}
	}
	return r
}

func parseRule(line string) (r rule, ok bool) {
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if line == "" || line[0] == '#' {
		return rule{}, false
	}
	line, r.keep = strings.CutPrefix(line, "!")
	line, r.dirsOnly = strings.CutSuffix(line, "/")
	r.anywhere = !strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" || len(line) > maxPattern {
		return rule{}, false
	}
	names, err := split(line)
	if err != nil {
		return rule{}, false
	}
	r.names = names
	r.plain = len(names) == 1 && !strings.ContainsAny(names[0], `*?[\`)
	return r, true
}

// Match looks for the last rule on a path that is relative to the directory of
// the rules. decided is false if there is none. Who asks must have asked for the
// directories on the way before: what is in an ignored one is ignored.
func (r Rules) Match(name string, isDir bool) (ignored, decided bool) {
	var names []string // of name, once it is needed
	last := path.Base(name)
	for i := len(r.rules) - 1; i >= 0; i-- {
		rule := r.rules[i]
		var hit bool
		switch {
		case rule.dirsOnly && !isDir:
		case rule.plain && rule.anywhere:
			hit = rule.names[0] == last
		case rule.plain:
			hit = rule.names[0] == name
		case rule.anywhere:
			hit = matchName(rule.names[0], last)
		default:
			if names == nil {
				names = strings.Split(name, "/")
			}
			hit = match(rule.names, names)
		}
		if hit {
			return !rule.keep, true
		}
	}
	return false, false
}
