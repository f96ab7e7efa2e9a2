package codecheck_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"nexus.internal/child/codecheck"
	"nexus.internal/protocol"
)

// Where eslint is there, it applies the rules that are asked for, or those that it recommends;
// elsewhere JavaScript has the grammar alone, and the answer says so.
func TestESLint(t *testing.T) {
	_, missing := exec.LookPath("eslint")
	for _, tt := range []struct {
		name, language, code string
		rules                []string
		want                 string // valid, and each diagnostic
	}{
		{"recommended", "javascript", "const a = 1;\na = 2;\nexport { a };\n", nil, "false|2:1 error no-const-assign"},
		{"a fragment", "javascript", "function f() { g(); }\n", []string{}, "true|1:10 warning no-unused-vars|1:16 warning no-undef"},
		{"names of node and browsers", "javascript", "console.log(document.title, Buffer.from('a'), require('fs'));\nmodule.exports = fetch;\n", nil, "true"},
		{"a rule", "javascript", "if (a == 1) { b(); }\nvar c;\n", []string{"eqeqeq", "no-var"}, "false|1:7 error eqeqeq|2:1 error no-var"},
		{"a rule, and a module", "javascript", "import a from 'a';\nexport default a == 1;\n", []string{"eqeqeq"}, "false|2:18 error eqeqeq"},
		{"a comment of the code's own", "javascript", "// eslint-disable-next-line eqeqeq\nif (a == 1) b();\n", []string{"eqeqeq"}, "true"},
		{"grammar", "javascript", "\nlet = = 2;\n", []string{"eqeqeq"}, "false|2:7 error "},
		{"await at the top", "javascript", "const a = await fetch('x');\nexport { a };\n", nil, "true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got, err := codecheck.Check(ctx, protocol.CodeCheck{Code: tt.code, Language: tt.language, Rules: tt.rules}, os.Environ())
			if missing != nil {
				if err == nil && (got.Checker.Name != "node --check" || len(got.UncheckedRules) != len(tt.rules)) {
					t.Errorf("without eslint: %+v", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			said := fmt.Sprint(got.Valid)
			for _, d := range got.Diagnostics {
				said += fmt.Sprintf("|%d:%d %s %s", d.Line, d.Column, d.Severity, d.Rule)
			}
			if said != tt.want || got.Checker.Name != "eslint" || !strings.HasPrefix(got.Checker.Version, "v") || len(got.UncheckedRules) > 0 {
				t.Errorf("got %s of %+v, want %s", said, got, tt.want)
			}
		})
	}
	if missing != nil {
		return
	}
	got, err := codecheck.Check(t.Context(), protocol.CodeCheck{Code: "a();\n", Language: "javascript", Rules: []string{"no-such-rule"}}, os.Environ())
	if err != nil || got.Valid || !strings.Contains(fmt.Sprint(got.Diagnostics), "no-such-rule") {
		t.Errorf("a rule that it has not: %+v, %v", got, err)
	}
}
