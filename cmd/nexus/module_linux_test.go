package main_test

import (
	"archive/zip"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"nexus.internal/fixtures"
)

const root = "../.."

// goRun runs go in dir, without a network, and returns what it prints.
func goRun(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOFLAGS=-mod=mod -trimpath -buildvcs=false -modcacherw", "CGO_ENABLED=0", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local"), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s%s", args, err, out, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// consumer copies the program of another module, whose imports are of the module at path.
func consumer(t *testing.T, path string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, file := range txtar.Parse(fixtures.Read(t, "gomodule.txtar")).Files {
		text := strings.ReplaceAll(string(file.Data), "nexus.internal", path)
		if err := os.WriteFile(filepath.Join(dir, file.Name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// checkConsumer runs the program in dir with a real server and a real child.
func checkConsumer(t *testing.T, dir string) {
	t.Helper()
	s := newLive(t, nil)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "consumer"), filepath.Join(programs, "nexus-child"))
	cmd.Env = []string{"HOME=" + s.home, "NEXUS_HOME=" + s.home, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "by the server\nby a pipe\n" {
		t.Errorf("the program of another module: %v\n%s", err, out)
	}
	s.end()
}

// A program of another module uses the client and the protocol, by a replacement of our path in its go.mod.
func TestGoModule(t *testing.T) {
	t.Parallel()
	dir := consumer(t, "nexus.internal")
	tree, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	goRun(t, dir, nil, "mod", "edit", "-require", "nexus.internal@v0.0.0", "-replace", "nexus.internal="+tree)
	goRun(t, dir, nil, "build", "-o", "consumer", ".")
	checkConsumer(t, dir)
	// It carries none of what the server has.
	var others []string
	for module := range strings.Lines(goRun(t, dir, nil, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")) {
		if module = strings.TrimSpace(module); module != "" && !slices.Contains(others, module) {
			others = append(others, module)
		}
	}
	slices.Sort(others)
	want := []string{
		"example.org/consumer", "github.com/go-json-experiment/json", "github.com/google/uuid", "github.com/tidwall/gjson",
		"github.com/tidwall/match", "github.com/tidwall/pretty", "golang.org/x/sys", "nexus.internal",
	}
	if diff := cmp.Diff(want, others); diff != "" {
		t.Errorf("it links modules (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(filepath.Join(dir, "consumer")); err != nil || info.Size() > 20<<20 {
		t.Errorf("the program has %d bytes, %v", info.Size(), err)
	}
}

// A fork gives the tree its own path by one command. Then go get finds it, as from any proxy.
func TestFork(t *testing.T) {
	t.Parallel()
	const path = "example.org/you/nexus"
	fork := copyTree(t)
	for _, wrong := range []string{"", "nexus", "example.org/you/", "example.org/a b", "/example.org/you"} {
		if out, err := exec.CommandContext(t.Context(), "make", "-C", fork, "-s", "module", "MODULE="+wrong).CombinedOutput(); err == nil {
			t.Errorf("the path %q is taken: %s", wrong, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "make", "-C", fork, "-s", "module", "MODULE="+path).CombinedOutput(); err != nil {
		t.Fatalf("make module: %v\n%s", err, out)
	}
	if out, _ := exec.CommandContext(t.Context(), "grep", "-rlIF", "nexus.internal", fork).Output(); len(out) > 0 {
		t.Errorf("the earlier path stands in\n%s", out)
	}
	goRun(t, fork, nil, "list", "-deps", "-test", "./...") // all imports are found
	// What compiles all of it is left to make soak.
	if testing.Short() {
		return
	}
	goRun(t, fork, nil, "vet", "./...")

	proxy := t.TempDir()
	publish(t, fork, path, filepath.Join(proxy, filepath.FromSlash(path), "@v", "v0.1.0"))
	dir, cache := consumer(t, path), t.TempDir()
	downloads := filepath.Join(goRun(t, dir, nil, "env", "GOMODCACHE"), "cache", "download") // is a proxy, too
	env := []string{"GOMODCACHE=" + cache, "GOPROXY=file://" + proxy + ",file://" + downloads}
	goRun(t, dir, env, "get", path+"/bridge/client@v0.1.0", path+"/protocol@v0.1.0")
	goRun(t, dir, env, "build", "-o", "consumer", ".")
	checkConsumer(t, dir)
}

// copyTree copies the source tree, without what git keeps and make has built.
func copyTree(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path) // both are relative
		switch to := filepath.Join(dir, rel); {
		case err != nil:
			return err
		case rel == ".git" || rel == "bin":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(to, 0o700)
		case !d.Type().IsRegular():
			return nil
		default:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			return os.WriteFile(to, text, info.Mode().Perm())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// publish writes what a proxy serves of the module at path in tree: base.info, base.mod and base.zip, as
// the reference of Go modules has it. Folders with a go.mod of their own are other modules.
func publish(t *testing.T, tree, path, base string) {
	t.Helper()
	version := filepath.Base(base)
	mod, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	err = errors.Join(err, os.MkdirAll(filepath.Dir(base), 0o700), os.WriteFile(base+".mod", mod, 0o600),
		os.WriteFile(base+".info", []byte(`{"Version":"`+version+`"}`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(base + ".zip")
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(file)
	err = filepath.WalkDir(tree, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		rel, _ := filepath.Rel(tree, name) // both are absolute
		if d.IsDir() {
			if _, err := os.Lstat(filepath.Join(name, "go.mod")); err == nil && rel != "." {
				return fs.SkipDir
			}
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		member, err := w.Create(path + "@" + version + "/" + filepath.ToSlash(rel))
		if err == nil {
			_, err = member.Write(text)
		}
		return err
	})
	if err := errors.Join(err, w.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
}
