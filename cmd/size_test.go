package cmd_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Bounds of the Go that is not in tests. Whoever makes it smaller lowers them.
const (
	// maxMethods is how many methods a type may have: one with more is several types.
	maxMethods = 40
	// maxFunctionFields is how many fields of structs may hold functions: hooks, cancel and
	// release functions, and the yields of iterators. Elsewhere an interface or a plain value
	// can be read without a search for the function behind it.
	maxFunctionFields = 32
	// maxLines is how many lines there may be in all, comments and blank lines included.
	maxLines = 149_150
	// maxReadme is how many lines README may have: it is what a newcomer reads in one go.
	maxReadme = 120
)

// size is what the Go of all packages has.
type size struct {
	methods        map[string]int // by type
	functionFields []string
	lines          int
}

// measured reads all files but tests.
func measured(t *testing.T) size {
	t.Helper()
	s := size{methods: map[string]int{}}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != ".." && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s.lines += bytes.Count(text, []byte("\n"))
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					s.methods[strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")+"."+receiver(n.Recv.List[0].Type)]++
				}
			case *ast.StructType:
				for _, field := range n.Fields.List {
					if holdsFunction(field.Type) {
						for range max(1, len(field.Names)) {
							s.functionFields = append(s.functionFields, set.Position(field.Pos()).String())
						}
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// holdsFunction reports whether a field's type is a function, or is made of one.
func holdsFunction(of ast.Expr) (holds bool) {
	ast.Inspect(of, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncType:
			holds = true
		case *ast.StructType, *ast.InterfaceType:
			return false
		}
		return !holds
	})
	return holds
}

// No type outside tests holds a program of its own, and the whole grows only on purpose.
func TestSize(t *testing.T) {
	s := measured(t)
	for name, n := range s.methods {
		if n > maxMethods {
			t.Errorf("%s has %d methods, want at most %d", name, n, maxMethods)
		}
	}
	if n := len(s.functionFields); n > maxFunctionFields {
		t.Errorf("%d fields hold functions, want at most %d:\n%s", n, maxFunctionFields, strings.Join(s.functionFields, "\n"))
	}
	if s.lines > maxLines {
		t.Errorf("there are %d lines of Go outside tests, want at most %d", s.lines, maxLines)
	}
	if len(s.methods) < 100 || len(s.functionFields) < 10 || s.lines < 10_000 {
		t.Errorf("only %d types, %d function fields and %d lines were found", len(s.methods), len(s.functionFields), s.lines)
	}
}

// README stays short: what is said at greater length stands on the page of its subject.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if n := bytes.Count(text, []byte("\n")); err != nil || n > maxReadme || n < maxReadme/2 {
		t.Errorf("README.md has %d lines (%v), want at most %d", n, err, maxReadme)
	}
}

// receiver is the name of a receiver's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return "?"
}
