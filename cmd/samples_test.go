package cmd_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// compiled is what go list -export says of a package.
type compiled struct {
	ImportPath, Name, Dir, Export string
	Standard                      bool
	GoFiles, Imports              []string
}

// The samples of the packages' comments are correct Go: every name of a package, every member
// and every type is right. What a sample takes from its surroundings (ctx, log, paths) is not
// declared, and "…" stands for what the reader fills in.
func TestSamplesOfPackageComments(t *testing.T) {
	packages := compiledPackages(t)
	exports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(packages[path].Export)
	})
	checked := 0
	for _, path := range slices.Sorted(maps.Keys(packages)) {
		p := packages[path]
		if p.Standard || !strings.HasPrefix(path, module) || p.Name == "main" {
			continue
		}
		for _, sample := range samplesOf(t, p) {
			if strings.HasPrefix(sample, "UPDATE=1 go test ") { // a command
				continue
			}
			checked++
			if err := checkSample(packages, exports, p, sample); err != nil {
				t.Errorf("the sample of package %s: %v\n%s", path, err, sample)
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d samples were found", checked)
	}
}

func compiledPackages(t *testing.T) map[string]compiled {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Name,Dir,Export,Standard,GoFiles,Imports", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]compiled{}
	for dec := jsontext.NewDecoder(bytes.NewReader(out)); ; {
		var p compiled
		if err := json.UnmarshalDecode(dec, &p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

// samplesOf are the indented blocks of the comment of a package.
func samplesOf(t *testing.T, p compiled) (samples []string) {
	t.Helper()
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		var block strings.Builder
		for line := range strings.Lines(file.Doc.Text() + "\n.\n") {
			if code, ok := strings.CutPrefix(line, "\t"); ok {
				block.WriteString(code)
			} else if block.Len() > 0 && strings.TrimSpace(line) != "" {
				samples = append(samples, block.String())
				block.Reset()
			}
		}
	}
	return samples
}

var (
	blanks  = regexp.MustCompile(`,?\s*…`)
	selects = regexp.MustCompile(`\b([a-z][a-z0-9]*)\.[A-Z]`)
	// accepted are errors of what a sample leaves to its reader.
	accepted = regexp.MustCompile(`^(undefined: [a-z]\w*|declared and not used: .*|.* is not used.*|.*imported and not used.*|too many return values(.|\n)*|no new variables on left side of :=)$`)
)

// checkSample checks the types of a sample, in a function of a package that imports what
// the sample names.
func checkSample(packages map[string]compiled, exports types.Importer, p compiled, sample string) error {
	imports := map[string]string{}
	for _, match := range selects.FindAllStringSubmatch(sample, -1) {
		if path := importOf(packages, p, match[1]); path != "" {
			imports[match[1]] = path
		}
	}
	var text strings.Builder
	text.WriteString("package sample\n")
	for name, path := range imports {
		fmt.Fprintf(&text, "import %s %q\n", name, path)
	}
	body := blanks.ReplaceAllString(sample, "")
	if !strings.HasPrefix(sample, "func ") {
		body = "func _() {\n" + body + "}\n"
	}
	text.WriteString(body)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "sample.go", text.String(), parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	var wrong []error
	config := types.Config{Importer: exports, Error: func(err error) {
		if e, ok := errors.AsType[types.Error](err); ok && !accepted.MatchString(e.Msg) {
			wrong = append(wrong, errors.New(e.Msg))
		}
	}}
	_, _ = config.Check("sample", fset, []*ast.File{file}, nil) // Error has its errors
	return errors.Join(wrong...)
}

// importOf is the package that a sample of p names: p itself, one that p imports, or else the
// one of that name that is the nearest to it.
func importOf(packages map[string]compiled, p compiled, name string) string {
	if name == p.Name {
		return p.ImportPath
	}
	for _, path := range p.Imports {
		if packages[path].Name == name {
			return path
		}
	}
	for _, path := range slices.Sorted(maps.Keys(packages)) {
		if q := packages[path]; q.Name == name && !strings.Contains(path, "/internal/") && !strings.HasPrefix(path, "vendor/") && (q.Standard || strings.HasPrefix(path, module)) {
			return path
		}
	}
	return ""
}
