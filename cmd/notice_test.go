package cmd_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const noticeHead = `nexus is licensed as LICENSE says. Its programs contain the software that is named here, under these terms.
` + "`UPDATE=1 go test ./cmd -run Notice`" + ` makes this file from the modules that are linked.
`

// NOTICE names each module that a program of ours contains on some system, with the
// terms of its licence, which have to go with it.
func TestNotice(t *testing.T) {
	if testing.Short() && os.Getenv("UPDATE") == "" {
		// Modules of other systems are not fetched for a test on this one.
		t.Log("modules of linux alone are compared")
		for _, module := range linked(t, "linux") {
			text, err := os.ReadFile("../NOTICE")
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(text, []byte(module.name+"\n")) {
				t.Errorf("NOTICE lacks %s", module.name)
			}
		}
		return
	}
	named := map[string][]string{} // modules by their terms
	for _, module := range linked(t, "linux", "darwin", "freebsd") {
		terms := terms(t, module)
		named[terms] = append(named[terms], module.name)
	}
	var out strings.Builder
	out.WriteString(noticeHead)
	rule := strings.Repeat("-", 100)
	for _, terms := range slices.SortedFunc(maps.Keys(named), func(a, b string) int { return strings.Compare(named[a][0], named[b][0]) }) {
		fmt.Fprintf(&out, "\n%s\n%s\n%s\n\n%s\n", rule, strings.Join(named[terms], "\n"), rule, strings.TrimSpace(terms))
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile("../NOTICE", []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(out.String(), string(got)); diff != "" {
		t.Errorf("NOTICE is not that of the modules (-want +got):\n%s", diff)
	}
}

type linkedModule struct {
	name string // path and version
	dir  string
}

// linked are the modules of the programs on these systems, and Go's own library, by name.
func linked(t *testing.T, systems ...string) []linkedModule {
	t.Helper()
	found := map[string]string{"Go's standard library": goOutput(t, "", "env", "GOROOT")}
	for _, system := range systems {
		const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}|{{.Dir}}{{end}}{{end}}`
		for line := range strings.Lines(goOutput(t, system, "list", "-deps", "-f", format, "../cmd/nexus", "../cmd/nexus-child", "../cmd/nexus-rpc", "../cmd/nexus-cluster")) {
			name, dir, _ := strings.Cut(strings.TrimSpace(line), "|")
			if name != "" {
				found[name] = dir
			}
		}
	}
	var modules []linkedModule
	for _, name := range slices.Sorted(maps.Keys(found)) {
		modules = append(modules, linkedModule{name, found[name]})
	}
	return modules
}

// terms are a module's licence, and its own notice where it has one.
func terms(t *testing.T, module linkedModule) string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"LICEN[CS]E*", "COPYING*", "NOTICE*"} {
		files, err := filepath.Glob(filepath.Join(module.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, strings.ReplaceAll(string(text), "\r\n", "\n"))
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no licence", module.name)
	}
	return strings.Join(all, "\n\n")
}

func goOutput(t *testing.T, system string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	if system != "" {
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out))
}
