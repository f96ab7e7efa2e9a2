package yamlcheck_test

import (
	"fmt"
	"strings"
	"testing"

	"nexus.internal/cmd/internal/yamlcheck"
)

// What is right has no fault, and what is not has it where it is. want are the faults: line, column
// and the beginning of the words.
func TestFaults(t *testing.T) {
	const eight = "[*%[1]s,*%[1]s,*%[1]s,*%[1]s,*%[1]s,*%[1]s,*%[1]s,*%[1]s]\n"
	bomb := "a: &a x\n"
	for i := range 20 {
		bomb += fmt.Sprintf("%c: &%[1]c "+strings.ReplaceAll(eight, "[1]", "[2]"), 'b'+i, string(rune('a'+i)))
	}
	for _, tt := range []struct{ name, code, want string }{
		{"documents, tags, merges", "%YAML 1.1\n---\na: &a {b: 1}\n---\nc: !x\n  <<: [{a: 1}, {b: 2}]\n  <<: {c: 3}\n  \"a\": |\n    a: b: c\n", ""},
		{"a bomb", bomb, ""},
		{"aliases of itself", "a: &x\n  b: *x\n", ""},
		{"the same key", "a: 1\nb:\n  c: 1\n  \"c\": 2\n1: x\n\"1\": y\n", "4:3 the key \"c\" stands in line 3, too"},
		{"a colon", "a: 1\nb:\n  - c: d: e\n", "3:0 mapping values are not allowed"},
		{"a tab, behind a key that stands twice", "a: 1\na: 1\n---\na:\n\tb: 1\n", "2:1 the key|5:0 found character that cannot start any token"},
		{"an alias of nothing", "a: *b\n", "0:0 unknown anchor 'b'"},
		{"deep", strings.Repeat("[", 20000), "0:0 exceeded max depth"},
		{"a NUL", "a: \x00\n", "0:0 control characters"},
		{"no UTF-8", "a: \xff\n", "0:0 invalid leading UTF-8 octet"},
		{"empty", "", ""},
		{"BOM, CRLF, no last newline", "\uFEFFa: 1\r\nb:\r\n- c", ""},
	} {
		found := yamlcheck.Faults(tt.code)
		var want []string
		if tt.want != "" {
			want = strings.Split(tt.want, "|")
		}
		if len(found) != len(want) {
			t.Errorf("%s: %+v, want %q", tt.name, found, want)
			continue
		}
		for i, f := range found {
			if got := fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Words); !strings.HasPrefix(got, want[i]) {
				t.Errorf("%s: %q, want %q", tt.name, got, want[i])
			}
		}
	}
	if got := yamlcheck.Faults(strings.Repeat("a: 1\n", 1000)); len(got) != 201 {
		t.Errorf("%d faults", len(got))
	}
}

// No input makes it panic, and a fault is one line.
func FuzzFaults(f *testing.F) {
	f.Add("a: &a [1, {b: *a}]\n---\n? c\n: >\n  d\n")
	f.Add("a:\n\t- b: c: d")
	f.Fuzz(func(t *testing.T, code string) {
		for _, fault := range yamlcheck.Faults(code) {
			if strings.Contains(fault.Words, "\n") || fault.Line < 0 || fault.Line > 2+strings.Count(code, "\n")+strings.Count(code, "\r")+strings.Count(code, "\u0085")+strings.Count(code, "\u2028")+strings.Count(code, "\u2029") {
				t.Errorf("%q: %+v", code, fault)
			}
		}
	})
}
