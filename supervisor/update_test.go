package supervisor_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Agent.update is the only place that locks an agent, and touches its state: newAgent alone
// fills that before anybody else has the agent.
func TestOnlyUpdateLocksAnAgent(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	locks := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok && f.Name.Name == "newAgent" {
				return false
			}
			field, ok := n.(*ast.SelectorExpr)
			switch {
			case !ok || field.Sel.Name != "stateMu" && field.Sel.Name != "guarded":
			case name == "update.go":
				locks++
			default:
				t.Errorf("%s: %s is for Agent.update alone", set.Position(n.Pos()), field.Sel.Name)
			}
			return true
		})
	}
	if locks != 3 {
		t.Errorf("update.go names the lock and the state %d times, want 3", locks)
	}
}
