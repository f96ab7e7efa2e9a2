package cmd_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"nexus.internal/cmd/internal/cli"
)

// withoutVerb are the methods that no verb of nexus-rpc uses: `nexus-rpc call` does.
var withoutVerb = map[string]bool{
	"revoke_allowances": true, "fork": true, "new_session": true, "create_plan": true, "execute_task": true, "get_agent_summaries": true, "get_limits": true,
	"list_runs":  true,
	"mcp_status": true, "rpc.discover": true, "set_limits": true, "get_notes": true, "get_settings": true, "set_settings": true,
	"update_context": true, "validate_code": true,
}

// Each method has a verb of nexus-rpc or stands in withoutVerb, so that no new one lacks a verb
// by oversight.
func TestEachMethodHasAVerbOrNeedsNone(t *testing.T) {
	methods := map[string]string{} // names, by the variables of their rows
	inspect(t, "../bridge/api/methods.go", func(n ast.Node) {
		declared, ok := n.(*ast.ValueSpec)
		if !ok || len(declared.Values) != 1 {
			return
		}
		row, ok := declared.Values[0].(*ast.CompositeLit)
		if !ok {
			return
		}
		if of, ok := row.Type.(*ast.IndexListExpr); ok && fmt.Sprint(of.X) == "Def" {
			name := row.Elts[0].(*ast.KeyValueExpr).Value.(*ast.BasicLit).Value
			methods[declared.Names[0].Name] = strings.Trim(name, `"`)
		}
	})
	if len(methods) < 40 {
		t.Fatalf("only %d rows were found", len(methods))
	}
	files, err := filepath.Glob("internal/cli/*.go")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		inspect(t, name, func(n ast.Node) {
			if row, ok := n.(*ast.SelectorExpr); ok && fmt.Sprint(row.X) == "api" {
				used[methods[row.Sel.Name]] = true
			}
		})
	}
	needless := maps.Clone(withoutVerb)
	for _, name := range methods {
		switch {
		case !used[name] && !withoutVerb[name]:
			t.Errorf("no verb of cmd/internal/cli uses %s: give it one, or a place in withoutVerb", name)
		case used[name] && withoutVerb[name]:
			t.Errorf("a verb uses %s, which stands in withoutVerb", name)
		}
		delete(needless, name)
	}
	for name := range needless {
		t.Errorf("withoutVerb has %s, which is no method", name)
	}
}

// The page's table of verbs has each one.
func TestVerbsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ = bytes.Cut(page, []byte("\n| verb | what it does |\n"))
	page, _, _ = bytes.Cut(page, []byte("\n\n"))
	for name, verb := range cli.Verbs() {
		row := regexp.MustCompile("(?m)^\\| (?:.*, )?`" + name + "[ `].*$").Find(page)
		if row == nil {
			t.Errorf("cmd/OPERATIONS.md §2.2 has no row for %s", name)
		}
		if name != "create" { // the others name some in words
			continue
		}
		for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(verb.Flags, -1) {
			if !bytes.Contains(row, []byte(flag)) {
				t.Errorf("the row of %s lacks %s", name, flag)
			}
		}
	}
}

// inspect calls f with each node of a file.
func inspect(t *testing.T, path string, f func(ast.Node)) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		f(n)
		return true
	})
}

// Each flag of a verb stands in the section of its verbs, beside the verb or below the table.
func TestEachFlagIsInTheTable(t *testing.T) {
	page, err := os.ReadFile("OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### 2.2 nexus-rpc\n")
	section, _, _ = strings.Cut(section, "\n### 2.3 ")
	root := cli.New(cli.Options{Name: "nexus-rpc", Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}).Root()
	seen := 0
	for _, verb := range root.Commands() {
		told := ""
		for line := range strings.Lines(section) {
			row, inTable := strings.CutPrefix(line, "| `")
			if regexp.MustCompile("`"+verb.Name()+"[ `]").MatchString(line) && (!inTable || regexp.MustCompile("(^|`)"+verb.Name()+"[ `]").MatchString(row)) || strings.HasPrefix(row, verb.Name()+" ") {
				told += line
			}
		}
		verb.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			seen++
			if !f.Hidden && f.Name != "help" && f.Name != "no-start" && // of all verbs that start a server
				!strings.Contains(told, "--"+f.Name) {
				t.Errorf("cmd/OPERATIONS.md §2.2 lacks --%s of %s", f.Name, verb.Name())
			}
		})
	}
	if seen < 40 {
		t.Errorf("only %d flags were found", seen)
	}
}
