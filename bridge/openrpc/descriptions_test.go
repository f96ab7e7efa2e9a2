package openrpc_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
)

// comments are the comments of the fields of a package's structs, by Type.Field.
func comments(t *testing.T, dir string, into map[string]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			of, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range of.Fields.List {
				text := strings.Join(strings.Fields(field.Doc.Text()+field.Comment.Text()), " ")
				for _, name := range field.Names {
					into[spec.Name.Name+"."+name.Name] = text
				}
			}
			return true
		})
	}
}

// aboutGo matches a comment that is for readers of Go alone.
var aboutGo = regexp.MustCompile(`^[A-Z][a-z]+[A-Z]\w* |\bnil\b`)

// Each parameter of each method, and each member of an object within, is described by the
// comment of its Go field. UPDATE=1 writes descriptions.json.
func TestDescriptions(t *testing.T) {
	said, want := map[string]string{}, map[string]string{}
	comments(t, "../../protocol", said)
	comments(t, "../api", said)
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			if typ != reflect.TypeFor[jsontext.Value]() {
				walk(typ.Elem())
			}
			return
		case reflect.Struct:
		default:
			return
		}
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			text := said[typ.Name()+"."+f.Name]
			if text == "" || aboutGo.MatchString(text) {
				t.Errorf("%s.%s: %q does not say to a client what it is", typ.Name(), f.Name, text)
			}
			want[typ.Name()+"."+name] = text
			walk(f.Type)
		}
	}
	for _, m := range api.Methods {
		walk(reflect.TypeOf(m.Params))
	}
	written, err := json.Marshal(want, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		t.Fatal(err)
	}
	written = append(written, '\n')
	if os.Getenv("UPDATE") == "1" {
		if err := os.WriteFile("descriptions.json", written, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("descriptions.json"); err != nil || string(got) != string(written) {
		t.Errorf("descriptions.json is not what the comments say (%v): UPDATE=1 go test ./bridge/openrpc rewrites it", err)
	}
}

// A default that stands in a tag is a value of its parameter.
func TestDefaults(t *testing.T) {
	for _, m := range api.Methods {
		for f := range reflect.TypeOf(m.Params).Fields() {
			text, ok := f.Tag.Lookup("default")
			if !ok {
				continue
			}
			if f.Type.Elem().Kind() == reflect.String {
				text = `"` + text + `"`
			}
			value := reflect.New(f.Type.Elem())
			if err := json.Unmarshal([]byte(text), value.Interface()); err != nil {
				t.Errorf("%s: default of %s: %v", m.Name, f.Name, err)
			}
		}
	}
}
