package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// vars are what the placeholders ${NAME} of a dialogue stand for.
type vars map[string]string

var placeholder = regexp.MustCompile(`\$\{([^{}*]+)(\*\d+)?\}`)

// expand puts in what is known: ${NAME} and ${TEXT*N}.
func (v vars) expand(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		if parts[2] != "" {
			n, _ := strconv.Atoi(parts[2][1:]) // digits alone
			return strings.Repeat(parts[1], n)
		}
		if value, ok := v[parts[1]]; ok {
			return value
		}
		return found
	})
}

// match compares a value with what is expected, and binds names that are new.
// It returns the path of what differs, which begins with that given, or "".
func (v vars) match(want, got gjson.Result, path string) (differs string) {
	switch {
	case want.Type == gjson.String:
		if !v.matchText(want.Str, got) {
			return path
		}
		return ""
	case want.IsObject() && got.IsObject():
		return v.matchObject(want, got, path)
	case want.IsArray() && got.IsArray():
		return v.matchArray(want.Array(), got.Array(), path)
	case want.Raw != got.Raw:
		return path
	}
	return ""
}

func (v vars) matchObject(want, got gjson.Result, path string) (differs string) {
	members, more := map[string]gjson.Result{}, false
	got.ForEach(func(key, value gjson.Result) bool { members[key.Str] = value; return true })
	want.ForEach(func(key, value gjson.Result) bool {
		if key.Str == "<more>" {
			more = true
			return true
		}
		at := path + "." + key.Str
		value2, ok := members[key.Str]
		if !ok {
			differs = at
			return false
		}
		delete(members, key.Str)
		differs = v.match(value, value2, at)
		return differs == ""
	})
	if differs == "" && !more {
		for name := range members {
			return path + "." + name
		}
	}
	return differs
}

func (v vars) matchArray(want, got []gjson.Result, path string) (differs string) {
	more := len(want) > 0 && want[len(want)-1].Str == "<more>"
	if more {
		want = want[:len(want)-1]
	}
	if len(got) < len(want) || len(got) > len(want) && !more {
		return fmt.Sprintf("%s (its length is %d)", path, len(got))
	}
	for i := range want {
		if differs = v.match(want[i], got[i], fmt.Sprintf("%s.%d", path, i)); differs != "" {
			return differs
		}
	}
	return ""
}

func (v vars) matchText(want string, got gjson.Result) bool {
	switch want {
	case "<any>":
		return true
	case "<number>":
		return got.Type == gjson.Number && got.Num >= 0
	case "<time>":
		_, err := time.Parse(time.RFC3339Nano, got.Str)
		return err == nil && strings.HasSuffix(got.Str, "Z")
	}
	if got.Type != gjson.String {
		return false
	}
	if name := placeholder.FindStringSubmatch(want); name != nil && name[0] == want {
		v[name[1]] = got.Str
		return got.Str != ""
	}
	first, rest, wild := strings.Cut(want, "<text>")
	if !wild {
		return want == got.Str
	}
	text, ok := strings.CutPrefix(got.Str, first)
	for ok && wild {
		first, rest, wild = strings.Cut(rest, "<text>")
		if !wild {
			return strings.HasSuffix(text, first)
		}
		_, text, ok = strings.Cut(text, first)
	}
	return ok
}

// counts are members that vary with the tools that there are.
var counts = []string{"input_tokens", "system", "tools", "messages", "total_tokens"}

// rewrite writes a frame as a line of a dialogue: with the placeholders of the
// old line where they still fit, and names for what is known to vary.
func (v vars) rewrite(old, got gjson.Result, member string) string {
	switch {
	case old.Type == gjson.String && placeholderLike(old.Str) && v.match(old, got, "?") == "":
		return old.Raw
	case got.IsObject() && !(old.Exists() && old.Get("<more>").Exists() && v.match(old, got, "?") == ""):
		var members []string
		got.ForEach(func(key, value gjson.Result) bool {
			members = append(members, key.Raw+":"+v.rewrite(old.Get(gjson.Escape(key.Str)), value, key.Str))
			return true
		})
		return "{" + strings.Join(members, ",") + "}"
	case got.IsArray() && !(old.IsArray() && strings.HasSuffix(old.Raw, `"<more>"]`)):
		var elements []string
		before := old.Array()
		for i, value := range got.Array() {
			var was gjson.Result
			if i < len(before) {
				was = before[i]
			}
			elements = append(elements, v.rewrite(was, value, ""))
		}
		return "[" + strings.Join(elements, ",") + "]"
	case old.IsObject() || old.IsArray():
		return old.Raw
	case got.Type == gjson.String && (member == "at" || member == "last_action_at"):
		return `"<time>"`
	case slices.Contains(counts, member) && got.Type == gjson.Number && old.Raw != got.Raw:
		return `"<number>"`
	}
	raw := got.Raw
	for name, value := range v {
		raw = strings.ReplaceAll(raw, value, "${"+name+"}")
	}
	if member == "session_id" && raw == got.Raw {
		v["session"] = got.Str
		return `"${session}"`
	}
	return raw
}

func placeholderLike(text string) bool {
	return strings.Contains(text, "<any>") || strings.Contains(text, "<number>") || strings.Contains(text, "<time>") ||
		strings.Contains(text, "<text>") || placeholder.MatchString(text)
}

func TestPlaceholders(t *testing.T) {
	for _, test := range []struct{ want, got, differs string }{
		{`{"a":1,"b":[true,null]}`, `{"b":[true,null],"a":1}`, ""},
		{`{"a":1}`, `{"a":2}`, "frame.a"},
		{`{"a":1}`, `{"a":1,"b":2}`, "frame.b"},
		{`{"a":1,"<more>":"<any>"}`, `{"a":1,"b":2}`, ""},
		{`{"a":1,"b":2}`, `{"a":1}`, "frame.b"},
		{`{"a":"<any>"}`, `{}`, "frame.a"},
		{`{"a":"<any>"}`, `{"a":null}`, ""},
		{`{"a":"<number>"}`, `{"a":7}`, ""},
		{`{"a":"<number>"}`, `{"a":"7"}`, "frame.a"},
		{`{"a":"<time>"}`, `{"a":"2026-01-20T09:11:02.5Z"}`, ""},
		{`{"a":"<time>"}`, `{"a":"yesterday"}`, "frame.a"},
		{`{"a":["x"]}`, `{"a":["x","y"]}`, "frame.a (its length is 2)"},
		{`{"a":["x","<more>"]}`, `{"a":["x","y"]}`, ""},
		{`{"a":"one <text> three"}`, `{"a":"one two three"}`, ""},
		{`{"a":"<text>b<text>d"}`, `{"a":"abcd"}`, ""},
		{`{"a":"<text>b<text>d"}`, `{"a":"acd"}`, "frame.a"},
		{`{"a":"one<text>"}`, `{"a":"two"}`, "frame.a"},
		{`{"a":"${x}","b":"${x}"}`, `{"a":"1","b":"1"}`, ""},
		{`{"a":"${known}"}`, `{"a":"other"}`, "frame.a"},
		{`{"a":"${x}"}`, `{"a":""}`, "frame.a"},
		{`{"a":"${ab*3}"}`, `{"a":"ababab"}`, ""},
	} {
		v := vars{"known": "value"}
		if differs := v.match(gjson.Parse(v.expand(test.want)), gjson.Parse(test.got), "frame"); differs != test.differs {
			t.Errorf("%s against %s: differs at %q, want %q", test.got, test.want, differs, test.differs)
		}
	}
}
